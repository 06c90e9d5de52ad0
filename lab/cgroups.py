"""Limits, freezing and counting of one machine's processes, through its cgroup directories."""

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from lab import cgroup_layout
from lab.cgroup_layout import Controller, Layout, Write
from lab.errors import LabError

PRIVILEGED = "run it on the host, or in a container started with --privileged --cgroupns=host"
SETTLE_S = 5.0  # how long the kernel may take to freeze or to end processes


def read_layout() -> dict[Controller, cgroup_layout.Place]:
    """Where this kernel keeps the controllers that a lab needs."""
    mounts = Path("/proc/mounts").read_text()
    v2 = {root: Path(root, "cgroup.controllers").read_text() for root in cgroup_layout.v2_mounts(mounts)}
    return cgroup_layout.find_layout(mounts, v2)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCgroup:
    """The cgroup of one machine: one directory in each hierarchy that the lab uses."""

    layout: Layout
    lab: str
    machine: str

    @property
    def directories(self) -> list[str]:
        return cgroup_layout.member_dirs(self.layout, self.lab, self.machine)

    def set_cores(self, cores: float) -> None:
        for write in cgroup_layout.cpu_writes(self.layout["cpu"].version, cores):
            self._write("cpu", write)

    def set_memory(self, limit_bytes: int | None) -> None:
        for write in cgroup_layout.memory_writes(self.layout["memory"].version, limit_bytes):
            self._write("memory", write)

    def freeze(self) -> None:
        """Stop every process; return once all have stopped."""
        place = self.layout["freezer"]
        self._write("freezer", cgroup_layout.freezer_write(place.version, frozen=True))
        deadline = time.monotonic() + SETTLE_S
        while not self.is_frozen():
            if time.monotonic() > deadline:
                raise LabError(f"{self.machine} did not freeze in {SETTLE_S:.0f} s", fix="try again, or thaw it")
            time.sleep(0.001)

    def thaw(self) -> None:
        place = self.layout["freezer"]
        self._write("freezer", cgroup_layout.freezer_write(place.version, frozen=False))

    def is_frozen(self) -> bool:
        version = self.layout["freezer"].version
        file = self._file("freezer", "freezer.state" if version == 1 else "cgroup.events")
        return cgroup_layout.frozen_from(version, file.read_text())

    def processes(self) -> list[int]:
        return processes_in(self._file("freezer", "."))

    def kill(self) -> None:
        kill_all(self._file("freezer", "."))

    def cpu_seconds(self) -> float:
        version = self.layout["cpuacct"].version
        file = self._file("cpuacct", "cpuacct.usage" if version == 1 else "cpu.stat")
        return cgroup_layout.cpu_seconds_from(version, file.read_text())

    def cores(self) -> float:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if self.layout["cpu"].version == 1 else ("cpu.max",)
        return cgroup_layout.cores_from(" ".join(self._file("cpu", name).read_text() for name in names))

    def memory_limit_bytes(self) -> int | None:
        version = self.layout["memory"].version
        file = self._file("memory", "memory.limit_in_bytes" if version == 1 else "memory.max")
        return cgroup_layout.memory_limit_from(file.read_text())

    def memory_bytes(self) -> int:
        version = self.layout["memory"].version
        return int(self._file("memory", "memory.usage_in_bytes" if version == 1 else "memory.current").read_text())

    def num_oom_kills(self) -> int:
        version = self.layout["memory"].version
        file = self._file("memory", "memory.oom_control" if version == 1 else "memory.events")
        return cgroup_layout.oom_kills_from(file.read_text())

    def _file(self, controller: Controller, name: str) -> Path:
        return Path(self.layout[controller].root, f"{cgroup_layout.LAB_DIR_PREFIX}{self.lab}", self.machine, name)

    def _write(self, controller: Controller, write: Write) -> None:
        if write.file in cgroup_layout.OPTIONAL_FILES and not self._file(controller, write.file).exists():
            return
        fix = "choose another limit, or see whether the machine already uses more"
        _write(self._file(controller, write.file), write.value, fix=fix)


def make_directories(layout: Layout, lab: str, members: list[str]) -> None:
    """Make the lab's directories and one for each member below them."""
    for directory in cgroup_layout.lab_dirs(layout, lab):
        _make(Path(directory))
    for write in cgroup_layout.v2_switches(layout, lab):
        _write(Path(write.file), write.value, fix=PRIVILEGED)
    cpu = layout["cpu"]
    weight = cgroup_layout.lab_weight(cpu.version)
    _write(Path(cpu.root, f"{cgroup_layout.LAB_DIR_PREFIX}{lab}", weight.file), weight.value, fix=PRIVILEGED)
    for member in members:
        for directory in cgroup_layout.member_dirs(layout, lab, member):
            _make(Path(directory))


def processes_in(directory: Path) -> list[int]:
    """Process ids in a cgroup directory; none if the directory is gone."""
    try:
        return [int(pid) for pid in (directory / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def kill_all(directory: Path) -> None:
    """SIGKILL every process of a cgroup that can freeze, and thaw it; return once all are gone, or after SETTLE_S."""
    deadline = time.monotonic() + SETTLE_S
    while processes_in(directory) and time.monotonic() < deadline:
        # No process can fork meanwhile: v2 kills all of them by one write, and on v1 the cgroup is frozen.
        with contextlib.suppress(OSError):
            if (directory / "cgroup.kill").exists():
                (directory / "cgroup.kill").write_text("1")
            else:
                (directory / "freezer.state").write_text("FROZEN")
        for pid in processes_in(directory):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _thaw(directory)
        time.sleep(0.002)
    _thaw(directory)


def _make(directory: Path) -> None:
    try:
        directory.mkdir()
    except FileExistsError:
        fix = f"if no lab uses it: rmdir {directory}/.* {directory}/* {directory}"
        raise LabError(f"{directory} is there already, and no lab has it on record", fix=fix) from None
    except OSError as error:
        raise LabError(f"{directory} cannot be made: {error.strerror}", fix=PRIVILEGED) from None


def _write(path: Path, value: str, *, fix: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        raise LabError(f"{path} does not take {value!r}: {error.strerror}", fix=fix) from error


def _thaw(directory: Path) -> None:
    for name, value in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        if (directory / name).exists():
            with contextlib.suppress(OSError):
                (directory / name).write_text(value)


def remove_directories(lab_directories: list[str]) -> list[str]:
    """Kill every process below these directories and remove them; return the directories that remain."""
    deadline = time.monotonic() + SETTLE_S
    remaining = [Path(directory) for directory in lab_directories if Path(directory).exists()]
    for directory in remaining:
        for member in [path for path in directory.iterdir() if path.is_dir()]:
            if (member / "freezer.state").exists() or (member / "cgroup.kill").exists():
                kill_all(member)
    while remaining and time.monotonic() < deadline:
        remaining = [directory for directory in remaining if not _remove_tree(directory)]
        if remaining:
            time.sleep(0.005)
    return [str(directory) for directory in remaining]


def _remove_tree(directory: Path) -> bool:
    try:
        for member in [path for path in directory.iterdir() if path.is_dir()]:
            member.rmdir()
        directory.rmdir()
    except FileNotFoundError:
        return not directory.exists()
    except OSError:  # still busy: a process is on its way out
        return False
    return True
