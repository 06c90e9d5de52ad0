"""Reads processor, memory, battery and disk space."""

import os
import platform
import shutil
import tempfile
from pathlib import Path

from potluck.machine.facts import Power, Processor, Space

SHM = Path("/dev/shm")  # noqa: S108  looked at, not written to
_CGROUP = Path("/sys/fs/cgroup")


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
    """The CPU quota of this process's cgroup, version 2 or 1, as a number of cores."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        try:
            if not controllers:
                quota, period = (_CGROUP / path.lstrip("/") / "cpu.max").read_text().split()
            elif "cpu" in controllers.split(","):
                folder = next(f for f in (_CGROUP / "cpu", _CGROUP / "cpu,cpuacct") if f.exists()) / path.lstrip("/")
                quota = (folder / "cpu.cfs_quota_us").read_text().strip()
                period = (folder / "cpu.cfs_period_us").read_text().strip()
            else:
                continue
        except (OSError, ValueError, StopIteration):
            continue
        if quota not in ("max", "-1"):
            return int(quota) / int(period)
    return None


def _throttled_events() -> int | None:
    """How often the first core was slowed down for heat since the machine started."""
    try:
        return int(Path("/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count").read_text())
    except (OSError, ValueError):
        return None
