"""The cgroup files with a machine's limits, on cgroup v1 or v2, and the values to write: pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

Controller = Literal["cpu", "cpuacct", "memory", "freezer"]
CONTROLLERS: tuple[Controller, ...] = ("cpu", "cpuacct", "memory", "freezer")
# cgroup v2 always counts CPU time and can freeze; these two controllers have to be switched on.
V2_SWITCHED: tuple[Controller, ...] = ("cpu", "memory")

# A lab has priority, so that a busy computer does not distort its figures; its machines' limits keep it bounded.
LAB_WEIGHT = 100
CPU_PERIOD_US = 10_000  # short, so that a slow machine is slow smoothly instead of running and pausing
CPU_BURST_US = 2_000  # quota that a late timer left unused may be used a little later; without it 1.0 core gives 0.93
MIN_QUOTA_US = 1_000  # the kernel refuses less
MAX_PERIOD_US = 1_000_000  # the kernel refuses more

# Kernels before 5.14 have no burst, kernels without swap no limit on it.
OPTIONAL_FILES = ("cpu.cfs_burst_us", "cpu.max.burst", "memory.memsw.limit_in_bytes", "memory.swap.max")

LAB_DIR_PREFIX = "potluck-lab-"
HOLDERS = ".holders"  # no machine can have this name


@dataclass(frozen=True, slots=True)
class Write:
    """One value for one file of a cgroup."""

    file: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The mount point of a controller, and its cgroup version."""

    root: str
    version: Literal[1, 2]


Layout = Mapping[Controller, Place]


def find_layout(mounts: str, v2_controllers: Mapping[str, str]) -> dict[Controller, Place]:
    """Choose a mount for each controller from /proc/mounts and each v2 mount's cgroup.controllers.

    A controller is in one hierarchy at a time: where v1 has it, v1 is chosen. Missing controllers are left out.
    """
    layout: dict[Controller, Place] = {}
    for line in mounts.splitlines():
        _, root, kind, options, *_ = line.split()
        for controller in CONTROLLERS:
            if kind == "cgroup" and controller in options.split(","):
                layout.setdefault(controller, Place(root=root, version=1))
    for root, controllers in v2_controllers.items():
        for controller in CONTROLLERS:
            if controller not in V2_SWITCHED or controller in controllers.split():
                layout.setdefault(controller, Place(root=root, version=2))
    return layout


def v2_mounts(mounts: str) -> list[str]:
    """Where cgroup v2 is mounted, by /proc/mounts."""
    return [line.split()[1] for line in mounts.splitlines() if line.split()[2] == "cgroup2"]


def lab_dirs(layout: Layout, lab: str) -> list[str]:
    """The lab's own directory in each hierarchy that it uses."""
    roots = dict.fromkeys(place.root for place in layout.values())
    return [str(PurePosixPath(root) / f"{LAB_DIR_PREFIX}{lab}") for root in roots]


def member_dirs(layout: Layout, lab: str, member: str) -> list[str]:
    """The directories a process must join to be part of `member`: a machine, or the lab's holders."""
    return [str(PurePosixPath(lab_dir) / member) for lab_dir in lab_dirs(layout, lab)]


def v2_switches(layout: Layout, lab: str) -> list[Write]:
    """What to write so that machines' directories have the v2 controllers, parents first."""
    switched = [controller for controller in V2_SWITCHED if controller in layout and layout[controller].version == 2]
    return [
        Write(f"{parent}/cgroup.subtree_control", f"+{controller}")
        for controller in switched
        for parent in (layout[controller].root, f"{layout[controller].root}/{LAB_DIR_PREFIX}{lab}")
    ]


def cpu_quota(cores: float) -> tuple[int, int]:
    """Quota and period in microseconds: quota / period = cores, with the shortest period the kernel allows."""
    period_us = CPU_PERIOD_US
    if cores * period_us < MIN_QUOTA_US:
        period_us = min(MAX_PERIOD_US, round(MIN_QUOTA_US / cores))
    return max(MIN_QUOTA_US, round(cores * period_us)), period_us


def cpu_writes(version: Literal[1, 2], cores: float) -> list[Write]:
    """Limit a machine to `cores`, which may be a fraction.

    The weight is proportional to the cores: if all machines together want more than the computer has, their speeds
    keep their proportions.
    """
    quota_us, period_us = cpu_quota(cores)
    burst = str(min(CPU_BURST_US, quota_us))
    # The kernel refuses a burst above the quota, so the burst is set to 0 first and to its value last.
    if version == 2:
        return [
            Write("cpu.max.burst", "0"),
            Write("cpu.max", f"{quota_us} {period_us}"),
            Write("cpu.max.burst", burst),
            Write("cpu.weight", str(min(10_000, max(1, round(100 * cores))))),
        ]
    return [
        Write("cpu.cfs_burst_us", "0"),
        Write("cpu.cfs_period_us", str(period_us)),
        Write("cpu.cfs_quota_us", str(quota_us)),
        Write("cpu.cfs_burst_us", burst),
        Write("cpu.shares", str(max(2, round(1024 * cores)))),
    ]


def lab_weight(version: Literal[1, 2]) -> Write:
    """Give the whole lab priority over other work of the computer."""
    return Write("cpu.weight", str(100 * LAB_WEIGHT)) if version == 2 else Write("cpu.shares", str(1024 * LAB_WEIGHT))


def memory_writes(version: Literal[1, 2], limit_bytes: int | None) -> list[Write]:
    """Limit a machine's memory; the kernel then kills its greediest process, not the whole machine.

    Swap is limited, too: a machine must not grow into the computer's swap.
    """
    if version == 2:
        value = "max" if limit_bytes is None else str(limit_bytes)
        return [Write("memory.max", value), Write("memory.swap.max", "max" if limit_bytes is None else "0")]
    value = "-1" if limit_bytes is None else str(limit_bytes)
    writes = [Write("memory.limit_in_bytes", value), Write("memory.memsw.limit_in_bytes", value)]
    # v1 refuses a limit of memory plus swap below that of memory, so the one with swap is lifted first.
    return writes[::-1] if limit_bytes is None else writes


def freezer_write(version: Literal[1, 2], *, frozen: bool) -> Write:
    """Stop every process of a machine, or let them go on."""
    if version == 2:
        return Write("cgroup.freeze", "1" if frozen else "0")
    return Write("freezer.state", "FROZEN" if frozen else "THAWED")


def frozen_from(version: Literal[1, 2], text: str) -> bool:
    """Whether freezer.state (v1) or cgroup.events (v2) says that all processes have stopped."""
    return text.strip() == "FROZEN" if version == 1 else "frozen 1" in text.splitlines()


def cpu_seconds_from(version: Literal[1, 2], text: str) -> float:
    """CPU time from cpuacct.usage (v1, nanoseconds) or cpu.stat (v2, microseconds)."""
    return int(text) / 1e9 if version == 1 else _field(text, "usage_usec") / 1e6


def oom_kills_from(text: str) -> int:
    """Processes that the memory limit killed, from memory.oom_control (v1) or memory.events (v2)."""
    return _field(text, "oom_kill")


def cores_from(text: str) -> float:
    """Cores from cpu.max (v2), or from cpu.cfs_quota_us and cpu.cfs_period_us after each other (v1)."""
    quota_us, period_us = text.split()
    return int(quota_us) / int(period_us)


def memory_limit_from(text: str) -> int | None:
    """The limit from memory.max (v2) or memory.limit_in_bytes (v1, where no limit is a number beyond any memory)."""
    value = text.strip()
    return None if value == "max" or int(value) > 2**60 else int(value)


def _field(text: str, key: str) -> int:
    return next((int(line.split()[1]) for line in text.splitlines() if line.split()[0] == key), 0)
