"""Reads processor, memory, battery and disk space."""

import os
import platform
import shutil
import tempfile
from pathlib import Path

from potluck.machine.cgroups import own_cgroups
from potluck.machine.facts import Power, Processor, Space

SHM = Path("/dev/shm")  # noqa: S108  looked at, not written to


def read_processor() -> Processor:
    """The processor; CPU affinity and a container's quota limit the usable cores."""
    usable = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quota = _quota_cores()
    return Processor(
        name=_processor_name(),
        num_cores=os.cpu_count() or 1,
        usable_cores=round(min(usable, quota) if quota else usable, 3),
        throttled_events=_throttled_events(),
    )


def read_memory_bytes() -> int:
    """The machine's total memory."""
    import psutil  # noqa: PLC0415  only the commands that need facts pay for the import

    return int(psutil.virtual_memory().total)


def read_power() -> Power | None:
    """The state of the battery; None on a machine without one."""
    import psutil  # noqa: PLC0415

    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    if battery is None:
        return None
    return Power(on_battery=battery.power_plugged is False, percent=round(battery.percent))


def read_space(folder: Path) -> Space | None:
    """Space in the file system of a folder, or of its nearest parent that exists."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        usage = shutil.disk_usage(there)
    except OSError:
        return None
    return Space(
        folder=without_home(str(folder.absolute())),
        free_bytes=usage.free,
        total_bytes=usage.total,
        is_writable=os.access(there, os.W_OK),
    )


def read_spaces(first: Path) -> tuple[Space, ...]:
    """Space of the runs folder `first`, then of other writable folders for runs, most free space first."""
    others = [read_space(Path(place)) for place in (Path.home(), tempfile.gettempdir(), "/var/tmp", "/srv", "/mnt")]  # noqa: S108
    mine = read_space(first)
    roomy = sorted((one for one in others if one and one.is_writable), key=lambda one: -one.free_bytes)
    return tuple(one for one in (mine, *roomy) if one)


def without_home(path: str) -> str:
    """The path with ~ for the home folder, so that it does not reveal the user's name."""
    home = str(Path.home())
    return path.replace(home, "~", 1) if home != "/" and path.startswith(home) else path


def _processor_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def quota_cores() -> float | None:
    """How many cores a container's quota allows on average; None if no quota is below the number of cores."""
    quota = _quota_cores()
    return None if quota is None or quota >= len(os.sched_getaffinity(0)) else quota


def quota_threads() -> int | None:
    """How many threads a container's quota can keep busy; None if no quota is below the number of cores."""
    quota = quota_cores()
    return None if quota is None else max(1, int(quota))


def _quota_cores() -> float | None:
    """The smallest CPU quota of this process's cgroup and its parents, as a number of cores; None without a quota."""
    quotas = []
    for group in own_cgroups("cpu"):
        if group.version == 2:
            limit = group.read("cpu.max").split()
        else:
            limit = [group.read("cpu.cfs_quota_us"), group.read("cpu.cfs_period_us")]
        if len(limit) == 2 and limit[0].isdigit() and limit[1].isdigit():  # "max" and "-1" are no quota
            quotas.append(int(limit[0]) / int(limit[1]))
    return min(quotas, default=None)


def _throttled_events() -> int | None:
    """How often the first core was slowed down for heat since the machine started."""
    try:
        return int(Path("/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count").read_text())
    except (OSError, ValueError):
        return None
