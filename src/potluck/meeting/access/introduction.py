"""Builds the Introduction that a machine sends when it joins, from a snapshot of its facts."""

import getpass
import os

from potluck.doctor.finding import in_one_line
from potluck.doctor.firewall_fixes import open_for
from potluck.gates.identity import Identity
from potluck.machine.facts import Facts as Snapshot
from potluck.meeting.wire import Introduction


def introduce(
    seen: Snapshot,
    *,
    machine: str,
    machine_id: str,
    address: str,
    network: str,
    identity: Identity,
    gate_port: int,
    can_train: bool = True,
) -> Introduction:
    """This machine's Introduction, for the admission checks and the roster."""
    system = seen.system
    return Introduction(
        machine=machine,
        machine_id=machine_id,
        os=f"{system.distribution or system.family}{' (WSL2)' if seen.wsl else ''}",
        cores=max(1, round(seen.processor.usable_cores)),
        address=address,
        firewall_command=in_one_line(open_for(seen, [network], gate_port)),
        user=_user(),
        certificate=identity.certificate,
        versions=versions_of(seen),
        can_train=can_train,
        is_container=system.is_image_container,
    )


def versions_of(seen: Snapshot) -> dict[str, str]:
    """The versions that the host compares with its own."""
    software = seen.software
    return {
        "potluck": software.potluck,
        "python": software.python,
        "torch": software.torch.version if software.torch else "missing",
        "torchft": software.torchft or "missing",
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # the user id has no entry in the password database
        return str(os.getuid())
