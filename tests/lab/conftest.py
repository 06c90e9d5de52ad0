"""Lab tests: skipped with a reason where a lab cannot be built, and each must leave the computer as it was."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from lab import attach, requirements
from lab.cgroup_layout import LAB_DIR_PREFIX
from lab.record import STATE_DIR

SETTLE_S = 3.0


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("needs_lab"):
        missing = requirements.find_missing(requirements.read_facts(), firewall=True)
        if missing is not None:
            pytest.skip(str(missing).replace("\n ", ";"))


@pytest.fixture
def traces(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], set[str]]:
    """Everything on this computer that a lab could leave: call it before and after."""
    return lambda: find_traces(tmp_path_factory.getbasetemp())


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(request: pytest.FixtureRequest, traces: Callable[[], set[str]]) -> Iterator[None]:
    if not request.node.get_closest_marker("needs_lab"):
        yield
        return
    before = traces()
    yield
    deadline = time.monotonic() + SETTLE_S
    while (left := traces() - before) and time.monotonic() < deadline:
        time.sleep(0.02)  # the kernel takes its time to bury a namespace
    assert not left, f"left behind: {sorted(left)}"


def find_traces(scratch: Path) -> set[str]:
    """Namespaces, links, cgroups, mounts, processes, threads and records, each as a line of text."""
    found = {f"thread {thread.name}" for thread in threading.enumerate() if thread.name.startswith("lab ")}
    found |= {f"link {line}" for line in _lines("ip", "-o", "link", "show", "type", "bridge")}
    found |= {f"link {line}" for line in _lines("ip", "-o", "link", "show", "type", "veth")}
    found |= {
        f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if _may_be_ours(line, scratch)
    }
    others = _labs_of_others()
    found |= {f"record {path}" for path in STATE_DIR.glob("*") if path.stem not in others}
    for directory in Path("/sys/fs/cgroup").glob(f"**/{LAB_DIR_PREFIX}*"):
        if directory.name.removeprefix(LAB_DIR_PREFIX) not in others:
            found |= {f"cgroup {path}" for path in (directory, *directory.iterdir()) if path.is_dir()}
    own = {str(path.readlink()) for path in Path("/proc/self/ns").iterdir()}
    mine = {child.pid for child in psutil.Process().children(recursive=True)}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            cgroup = (process / "cgroup").read_text()
            spaces = {str(path.readlink()) for path in (process / "ns").iterdir()} - own
            command = (process / "cmdline").read_text().replace("\0", " ")
        except OSError:  # it has just ended
            continue
        if any(f"/{LAB_DIR_PREFIX}{other}/" in cgroup for other in others):
            continue
        found |= {f"namespace {space}" for space in spaces}
        if int(process.name) in mine or LAB_DIR_PREFIX in cgroup:
            found.add(f"process {process.name} {command}")
    return found


def _labs_of_others() -> set[str]:
    """Labs that somebody else keeps up on this computer come and go as they like."""
    mine = {psutil.Process().pid, *(child.pid for child in psutil.Process().children(recursive=True))}
    return {lab.name for lab in attach.labs_up() if lab.owner.pid not in mine}


def _may_be_ours(mount: str, scratch: Path) -> bool:
    """Whether a machine mounts such a thing; others who use this computer mount as they like."""
    point, kind = mount.split()[4], mount.partition(" - ")[2].split()[0]
    return kind in ("nsfs", "overlay") or point.startswith(("/etc", "/proc", "/sys", "/dev", str(scratch)))


def _lines(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
