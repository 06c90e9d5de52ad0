"""`potluck run --plain`: scripts that do not use Potluck, unchanged, on a host and a joined machine on loopback."""

import json
import re
import signal
import time
from pathlib import Path

import pytest

from tests.multiprocess.command import Command
from tests.multiprocess.test_meeting_door import RealHost, free_port

pytestmark = pytest.mark.timeout(240)
EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp_script.py"
SHORT = ["--epochs", "2", "--num-samples", "768", "--batch-size", "32"]
VARIABLES = """
import os, sys, torch, torch.distributed as dist

dist.init_process_group()
total = torch.ones(1)
dist.all_reduce(total)
names = "RANK LOCAL_RANK NODE_RANK GROUP_RANK WORLD_SIZE LOCAL_WORLD_SIZE GLOO_SOCKET_IFNAME".split()
print("place", *(os.environ[name] for name in names), int(total), "POTLUCK_JOIN" in os.environ, flush=True)
files = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
inodes = {os.readlink(file) for file in files if os.path.islink(file)}
for file in ("tcp", "tcp6"):
    for line in open(f"/proc/net/{file}").readlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in inodes and not words[1].split(":")[0].endswith("7F"):
            print("OPEN TO STRANGERS", line, flush=True)
dist.barrier()
sys.exit(0)
"""
FAILING = """
import torch, torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() > 0:
    raise ValueError("the labels are missing")
dist.all_reduce(torch.ones(1))
"""
DEAF = """
import signal, time, torch, torch.distributed as dist

signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
dist.init_process_group("gloo")
print("deaf", flush=True)
time.sleep(600 if dist.get_rank() == 0 else 0)
dist.all_reduce(torch.ones(1))
"""


@pytest.fixture
def machines(workplace):
    """rosa hosts and trains on one CPU; lily has joined with two."""
    (workplace / "job").mkdir()
    for name, text in (("variables", VARIABLES), ("failing", FAILING), ("deaf", DEAF)):
        (workplace / "job" / f"{name}.py").write_text(text)
    (workplace / "job" / "ddp_script.py").write_text(EXAMPLE.read_text())
    host = RealHost(free_port(), "--devices", "cpu")
    lily = Command("join", host.invitation, "--name", "lily", "--devices", "cpu,cpu", home="lily")
    try:
        host.wait_for("lily is here")
        host.wait_for("rosa is here")
        yield workplace / "job", lily
    finally:
        if lily.is_running():
            lily.signal(signal.SIGINT)
            lily.finish(60)
        host.end()


def run(*arguments, home="home"):
    return Command("run", "--plain", *arguments, home=home).finish(90)


def test_stock_scripts_run_unchanged_fail_once_stop_and_leave_a_sensible_folder(machines):
    job, lily = machines
    # Rank 0 is where the command was typed. All sockets of the workers are on loopback: gates carry what they say.
    code, output = Command("run", "--plain", job / "variables.py", home="lily", POTLUCK_JOIN="p1-secret").finish(90)
    assert code == 0, output
    assert "3 ranks with equal shares, rank 0 on lily" in output
    places = sorted(line.partition("place ")[2] for line in output.splitlines() if "place " in line)
    assert places == ["0 0 0 0 3 2 lo 3 False", "1 1 0 0 3 2 lo 3 False", "2 0 1 1 3 1 lo 3 False"]
    assert "OPEN TO STRANGERS" not in output

    code, output = run("--experiment-name", "stock", job / "ddp_script.py", *SHORT)
    assert code == 0, output
    assert "rosa: epoch 2: loss" in output
    assert "stock: finished after" in output
    assert "rosa has what the script wrote: snapshot.pt in" in output
    assert "step" not in output
    code, output = Command("report", "stock").finish(60)
    assert code == 0, output
    assert "stock: finished after" in output
    assert "its steps are not known" in output
    assert "repeat it: potluck run --plain ddp_script.py" in output
    code, output = Command("report", "stock", "--json").finish(60)
    told = json.loads(output)
    assert {one["machine"]: one["ended"] for one in told["plain"]["machines"]} == {
        "rosa": "finished",
        "lily": "finished",
    }
    assert all(one["seconds"] > 0 for one in told["plain"]["machines"])

    # Two workers raise the same error, and rank 0 loses its peers: one traceback, and no "connection closed".
    code, output = run("--experiment-name", "bad", job / "failing.py")
    assert code == 1
    assert output.count("ValueError: the labels are missing") == 1, output
    assert "run bad failed on lily" in output
    assert "onnection" not in output, output
    assert "potluck run --plain --solo failing.py" in output
    assert re.search(r"bad +failed +plain", Command("runs").finish(60)[1])
    code, output = Command("report", "bad", "--folder", "nowhere", home="lily").finish(60)  # read from the host
    assert code == 0, output
    assert "bad: failed" in output
    assert "  lily: ValueError: the labels are missing\n" in output
    assert "raise ValueError" in Path("experiments/bad/logs/lily-1.start-1.err.log").read_text()

    # A script that heeds no signal and waits for gradients is ended within 15 s.
    deaf = Command("run", "--plain", "--experiment-name", "deaf", job / "deaf.py")
    deaf.wait_for("lily (cpu): deaf")
    deaf.wait_for("rosa: deaf")
    status = Command("status", home="lily").finish(60)[1]
    assert "run deaf (deaf.py" in status
    assert "running, plain, on rosa and lily; what it prints: potluck logs deaf" in status
    assert "run deaf is stopping\n" in Command("stop", home="lily").finish(60)[1]
    asked_at = time.monotonic()
    code, output = deaf.finish(60)
    assert code == 130, output
    assert time.monotonic() - asked_at < 15
    assert "deaf: stopped after" in output

    # A machine that leaves ends the run, with its name.
    left = Command("run", "--plain", job / "ddp_script.py", "--epochs", "10000")
    left.wait_for("epoch 2")
    lily.signal(signal.SIGINT)
    code, output = left.finish(60)
    assert code == 1
    assert "failed: lily has left, and the others cannot go on without its worker" in output, output
    assert "potluck run --plain" in output
    lily.finish(60)


def test_solo_starts_a_process_for_each_device_and_tells_of_plain(workplace):
    (workplace / "ddp_script.py").write_text(EXAMPLE.read_text())
    (workplace / "failing.py").write_text("raise ValueError('no data')")
    (workplace / "ours.py").write_text("import potluck")
    code, output = run("--solo", "ddp_script.py", *SHORT)
    assert code == 0, output
    assert "ddp_script.py on this machine: 1 process, for cpu" in output
    assert "epoch 2: loss" in output
    assert Path("snapshot.pt").is_file()
    assert not Path("experiments").exists()
    code, output = run("--solo", "failing.py")
    assert code == 1
    assert output.count("ValueError: no data") == 1
    code, output = run("--solo", "ours.py")
    assert code == 1
    assert "ours.py uses Potluck" in output
    code, output = Command("run", "ddp_script.py").finish(60)
    assert code == 1  # this machine has joined nothing
    assert "ddp_script.py uses init_process_group and not Potluck" in output
    assert "potluck run --plain ddp_script.py" in output
