"""No test may leave anything behind: processes, threads, environment, folder, signal handlers, torch's settings."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import settings

# A busy computer takes longer for an example, and that is no failure; each test has its timeout.
settings.register_profile("potluck", deadline=None)
settings.load_profile("potluck")

# A shell's background job ignores Ctrl-C, and so would everything that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ["POTLUCK_TUNING"] = "0"  # trials of a few milliseconds choose by chance, and tests compare bits

SETTLE_S = 3.0
SET_BY_OTHERS = ("PYTEST_", "TORCHINDUCTOR_")
SHARED = ("tests/lab/", "tests/containers/", "tests/windows/")  # a lab, podman's storage, wine's: one test at a time


def pytest_addoption(parser):
    parser.addoption("--seeds", type=int, default=2, help="how many runs of the tests that draw faults at random")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Where processes share the tests, each takes whole files; those of a folder in SHARED go to one process."""
    from xdist.scheduler import LoadFileScheduling

    class OneLab(LoadFileScheduling):
        def _split_scope(self, nodeid):
            together = (folder for folder in SHARED if nodeid.startswith(folder))
            return next(together, None) or super()._split_scope(nodeid)

    return OneLab(config, log)


def pytest_runtest_setup(item):
    """CI ends in time: a long test that would begin after CI's last moment is skipped, with this reason."""
    last_s = os.environ.get("CI_LAST_START")
    if last_s and item.get_closest_marker("real_world") and time.time() > float(last_s):
        pytest.skip("CI has no time left to begin this test")


def pytest_generate_tests(metafunc):
    if "fault_seed" in metafunc.fixturenames:
        metafunc.parametrize("fault_seed", range(metafunc.config.getoption("seeds")))


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(request):
    before = _world()
    yield
    deadline = time.monotonic() + SETTLE_S
    while (left := _difference(before, _world())) and time.monotonic() < deadline:
        time.sleep(0.02)
    if left:
        pytest.fail(f"{request.node.nodeid} leaves behind: {'; '.join(left)}", pytrace=False)


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder of its own as the current one, with nothing from the outside environment."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("POTLUCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("POTLUCK_HOME", str(tmp_path / "home"))  # a test is never a member of its author's cluster
    monkeypatch.setenv("POTLUCK_TUNING", "0")
    return tmp_path


def _world():
    world = {
        "processes": _children(),
        "threads": {
            thread.name
            for thread in threading.enumerate()
            if not thread.name.startswith(("pytest_timeout", "MainThread"))
        },
        "environment": {f"{name}={value}" for name, value in os.environ.items() if not name.startswith(SET_BY_OTHERS)},
        "folder": {str(Path.cwd())},
        "signals": {str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)},
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        world["torch"] = {f"dtype {torch.get_default_dtype()}", f"gradients {torch.is_grad_enabled()}"}
    return world


def _difference(before, after):
    return [f"{kind}: {sorted(new)}" for kind in before if (new := after[kind] - before[kind])]


def _children():
    """This process's children, but for the trackers that Python itself keeps for the whole session."""
    found = set()
    for task in Path("/proc/self/task").glob("*/children"):
        for pid in _read(task).split():
            command = _read(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")
            if not any(word in command for word in ("resource_tracker", "forkserver")):
                found.add(f"{pid} {command.strip()[:100]}")
    return found


def _read(file):
    try:
        return file.read_text()
    except OSError:  # the thread or process has ended since it was listed
        return ""
