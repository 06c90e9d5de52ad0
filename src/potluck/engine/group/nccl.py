"""torchft's reconfigurable NCCL group, with the variables of NCCL that a user would otherwise set on every machine."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torchft.process_group import ProcessGroupNCCL

from potluck.core.environment import add_variables, outlive_lost_peers, read_nccl_variables
from potluck.core.nccl_variables import nccl_defaults
from potluck.engine.group.roster import Member
from potluck.machine.interfaces import interface_to_all, interface_with
from potluck.machine.nccl_settings import infiniband_devices, read_nccl_files


def own_nccl(device: torch.device) -> str:
    """The version of NCCL that a worker on this device could use; empty if it cannot use NCCL."""
    if device.type != "cuda" or not dist.is_nccl_available():
        return ""
    version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return f"{version} (RCCL)" if torch.version.hip else version  # NVIDIA's and AMD's libraries cannot meet


def own_card(device: torch.device) -> str:
    """The identity of a CUDA device, the same in all processes that use it; empty for other devices."""
    if device.type != "cuda":
        return ""
    known = torch.cuda.get_device_properties(device)
    parts = (getattr(known, name, "") for name in ("uuid", "pci_domain_id", "pci_bus_id", "pci_device_id"))
    return " ".join(map(str, parts))  # some of AMD's cards have no UUID of their own


class NcclWithTimeouts(ProcessGroupNCCL):  # type: ignore[misc]
    """torchft's group, with the timeout of each all-reduce: torchft clears the timeout before it reads it."""

    def _opts_hook(self, opts: Any) -> Any:
        if opts.timeout > timedelta(0):
            self._timeout = opts.timeout
        return super()._opts_hook(opts)


@dataclass(slots=True)
class NcclGroups:
    """Makes NCCL groups. NCCL reads its variables when the first one forms, so they are completed just before."""

    machine: str
    lan_address: str
    debug_file: Path
    """Where NCCL's messages go if NCCL_DEBUG asks for many."""
    defaults: dict[str, str] | None = field(default=None)
    """The variables that Potluck has set; None before the first group."""

    def make(self, timeout: timedelta, members: Sequence[Member]) -> Any:
        """A process group that torchft configures for these members."""
        self.prepare(members)
        return NcclWithTimeouts(timeout=timeout)

    def prepare(self, members: Sequence[Member]) -> None:
        """Set the variables of NCCL that the user has not set."""
        if self.defaults is None:
            others = [one.lan_address for one in members if one.machine != self.machine]
            self.defaults = complete_variables(others, own_address=self.lan_address, debug_file=self.debug_file)
            outlive_lost_peers()

    def in_force(self) -> dict[str, str]:
        """NCCL's variables in this process."""
        return read_nccl_variables()


def complete_variables(others: Sequence[str], *, own_address: str, debug_file: Path) -> dict[str, str]:
    """Set the variables of NCCL that the user has not set, and return them.

    `others`: addresses of the other machines; if there are none yet, the interface is that of `own_address`.
    """
    given = read_nccl_variables()
    files = read_nccl_files(named=given.get("NCCL_CONF_FILE", ""))
    found = nccl_defaults(
        {**files, **given},
        interface=interface_to_all(others) if others else interface_with(own_address),
        has_infiniband=bool(infiniband_devices()),
        debug_file=debug_file,
    )
    add_variables(found)
    return found
