"""`potluck run --plain --solo` when a process fails, starts others, or is stopped: the cause is told, nothing stays."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.multiprocess.command import Command

pytestmark = pytest.mark.timeout(180)
WAITING_RANK_0 = """
import os, time
if os.environ["RANK"] == "1":
    raise ValueError("the labels are missing")
time.sleep(100)
"""
REFUSED_DOWNLOAD = """
import urllib.request, torch, torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    urllib.request.urlopen("http://127.0.0.1:9/data.tar")
dist.all_reduce(torch.ones(1))
"""
STARTS_OTHERS = """
import os, pathlib, subprocess, sys, time
for new in (False, True):
    other = subprocess.Popen(["sleep", "100"], start_new_session=new)
    pathlib.Path(f"{'far' if new else 'near'}-{os.environ['RANK']}").write_text(str(other.pid))
sys.exit("no data") if len(sys.argv) > 1 else time.sleep(100)
"""


def start(*words, **variables):
    return Command("run", "--plain", "--solo", "--devices", "cpu,cpu", *words, **variables)


def is_running(process_id):
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def take_number(file):
    """The process id in the file, once it is there."""
    deadline = time.monotonic() + 60
    while not (file.is_file() and file.read_text()):
        assert time.monotonic() < deadline, f"no {file.name}"
        time.sleep(0.05)
    return int(file.read_text())


def test_the_error_is_of_the_rank_that_failed_by_itself(workplace):
    (workplace / "waiting.py").write_text(WAITING_RANK_0)
    code, told = start("waiting.py", EXPERIMENT_NAME="named").finish(90)
    assert code == 1
    assert "waiting.py failed in rank 1:" in told, told
    assert "ValueError: the labels are missing" in told
    assert "named" not in told  # EXPERIMENT_NAME is for the script, and names no run here
    (workplace / "refused.py").write_text(REFUSED_DOWNLOAD)
    code, told = start("refused.py").finish(90)
    assert code == 1
    assert "refused.py failed in rank 1:" in told, told
    assert "Connection refused" in told


@pytest.mark.parametrize("ending", ["failure", "signal"])
def test_what_the_script_started_ends_with_it(workplace, ending):
    (workplace / "starts.py").write_text(STARTS_OTHERS)
    command = start("starts.py", *(["fail"] if ending == "failure" else []))
    near, far = [], []
    try:
        near = [take_number(workplace / f"near-{rank}") for rank in (0, 1)]
        # A process in a session of its own is the script's own matter; it holds stderr, and nobody may wait for it.
        far = [take_number(workplace / f"far-{rank}") for rank in (0, 1)]
        if ending == "signal":
            command.signal(signal.SIGTERM)
        code, told = command.finish(60)
        assert code == (1 if ending == "failure" else 130), told
        assert not any(map(is_running, near))
    finally:
        for process_id in (*near, *far):
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)


def test_ctrl_c_twice_ends_a_script_that_heeds_no_signal_at_once(workplace):
    deaf = "import os, pathlib, signal, time\nfor one in (2, 15): signal.signal(one, signal.SIG_IGN)\n"
    (workplace / "deaf.py").write_text(
        deaf + "pathlib.Path(os.environ['RANK']).write_text(str(os.getpid()))\ntime.sleep(100)\n"
    )
    command = start("deaf.py")
    both = [take_number(workplace / rank) for rank in "01"]
    asked_at = time.monotonic()
    command.signal(signal.SIGINT)
    time.sleep(0.5)
    command.signal(signal.SIGINT)
    code, told = command.finish(60)
    assert code == 130, told
    assert time.monotonic() - asked_at < 4  # without the second Ctrl-C it takes 8 s
    assert not any(map(is_running, both))
