"""Whether this computer can carry a lab: facts in, one line of what is missing out."""

import os
import shutil
import sys
from collections.abc import Collection
from dataclasses import dataclass

from lab.cgroup_layout import CONTROLLERS
from lab.cgroups import read_layout
from lab.errors import RequirementError

TOOLS = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "nft": "nftables"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What matters of this computer."""

    system: str
    is_root: bool
    tools: Collection[str]
    controllers: Collection[str]


def read_facts() -> Facts:
    """Look at this computer."""
    linux = sys.platform == "linux"
    return Facts(
        system=sys.platform,
        is_root=linux and os.geteuid() == 0,
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
    tools = [tool for tool in TOOLS if tool not in facts.tools and (firewall or tool != "nft")]
    if tools:
        packages = sorted({TOOLS[tool] for tool in tools})
        return RequirementError(f"the lab needs {', '.join(tools)}", fix=f"apt-get install {' '.join(packages)}")
    controllers = [controller for controller in CONTROLLERS if controller not in facts.controllers]
    if controllers:
        return RequirementError(
            f"the lab needs the cgroup controllers {', '.join(controllers)}, which this kernel or container lacks",
            fix="run it on the host, or in a container started with --privileged --cgroupns=host",
        )
    return None


def check(*, firewall: bool = False) -> None:
    """Raise unless a lab can be built here."""
    missing = find_missing(read_facts(), firewall=firewall)
    if missing is not None:
        raise missing
