"""Whether this computer can run a lab: facts in, the first missing requirement out."""

import os
import shutil
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from lab.cgroup_layout import CONTROLLERS
from lab.cgroups import PRIVILEGED, read_layout
from lab.errors import RequirementError

TOOLS = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "nft": "nftables"}

CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts that decide whether this computer can run a lab."""

    system: str
    is_root: bool
    is_contained: bool  # root of a container that may not make namespaces or links
    tools: Collection[str]
    controllers: Collection[str]


def read_facts() -> Facts:
    """Read the facts of this computer."""
    linux = sys.platform == "linux"
    return Facts(
        system=sys.platform,
        is_root=linux and os.geteuid() == 0,
        is_contained=linux and not _has_rights(Path("/proc/self/status").read_text()),
        tools=[tool for tool in TOOLS if shutil.which(tool)],
        controllers=list(read_layout()) if linux else [],
    )


def find_missing(facts: Facts, *, firewall: bool) -> RequirementError | None:
    """The first thing that keeps a lab from being built here, or None."""
    if facts.system != "linux":
        return RequirementError(
            f"the lab needs Linux, this is {facts.system}", fix="use a Linux computer or virtual machine, or WSL2"
        )
    if not facts.is_root:
        return RequirementError("the lab needs root", fix="put sudo in front: sudo python -m lab ...")
    if facts.is_contained:
        return RequirementError(
            "the lab needs CAP_SYS_ADMIN and CAP_NET_ADMIN, which this container lacks", fix=PRIVILEGED
        )
    tools = [tool for tool in TOOLS if tool not in facts.tools and (firewall or tool != "nft")]
    if tools:
        packages = sorted({TOOLS[tool] for tool in tools})
        return RequirementError(f"the lab needs {', '.join(tools)}", fix=f"apt-get install {' '.join(packages)}")
    controllers = [controller for controller in CONTROLLERS if controller not in facts.controllers]
    if controllers:
        return RequirementError(
            f"the lab needs the cgroup controllers {', '.join(controllers)}, which this kernel or container lacks",
            fix=PRIVILEGED,
        )
    return None


def _has_rights(status: str) -> bool:
    """Whether /proc/self/status shows the capabilities to make namespaces, mounts and links."""
    effective = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(effective >> CAP_SYS_ADMIN & 1 and effective >> CAP_NET_ADMIN & 1)


def check(*, firewall: bool = False) -> None:
    """Raise RequirementError unless a lab can be built here."""
    missing = find_missing(read_facts(), firewall=firewall)
    if missing is not None:
        raise missing
