"""A run seen from other terminals: its logs and its display, again and again, without an effect on the run."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import yaml

from potluck.events.log import read_records
from potluck.events.types import RunStarted
from tests.multiprocess.command import Command
from tests.multiprocess.test_meeting_door import RealHost, free_port

SCRIPT = """
import os, time, torch, potluck
from torch import nn
from torch.utils.data import TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 8), torch.randint(3, (64,)))
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = potluck.start()
print("greeting", os.environ["GREETING"], flush=True)
model, optimizer = run.prepare(model, optimizer)
for epoch in run.epochs(5000):
    for inputs, targets in run.loader(data, global_batch=32):
        run.backward(nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
    print("own line", epoch, flush=True)
    run.print(f"common line {epoch}")
"""


@pytest.fixture
def running(workplace):
    """A host that does not train, lily that does, and a run of a script in progress."""
    (workplace / "job").mkdir()
    (workplace / "job" / "train.py").write_text(SCRIPT)
    host = RealHost(free_port())
    lily = Command("join", host.invitation, "--name", "lily", "--devices", "cpu,cpu", home="lily")
    training = None
    try:
        lily.wait_for("waiting for work")
        training = Command(
            "run", "--env", "GREETING=hello", "--experiment-name", "long", workplace / "job" / "train.py"
        )
        training.wait_for_step("long", 20, timeout_s=120)
        yield training
    finally:
        Command("stop", "long").finish(60)
        if training is not None and training.is_running():
            training.finish(60)
        lily.signal(signal.SIGINT)
        lily.finish(60)
        host.end()


def check_variables(training):
    """The command's variable reached both workers, is told and recorded, and reaches a worker that starts again."""
    greeted = "lily (cpu): greeting hello"
    training.wait_for(greeted)
    assert yaml.safe_load(Path("experiments/long/run.yaml").read_text())["env"] == ["GREETING=hello"]
    [run] = json.loads(Command("status", "--json").finish(60)[1])["runs"]
    assert run["settings"]["env"] == ["GREETING=hello"]
    assert run["gradients"] == ["gradients: Gloo, because no worker trains on a GPU"]
    assert run["gradients"][0] in training.output()
    began = [
        r.event for r in read_records(Path("experiments/long/events/lily-1.jsonl")) if isinstance(r.event, RunStarted)
    ]
    os.kill(began[-1].process_id, signal.SIGKILL)
    deadline = time.monotonic() + 90
    while training.output().count(greeted) < 3:
        assert time.monotonic() < deadline, training.output()
        time.sleep(0.2)


def test_logs_and_display_can_be_had_from_any_machine_and_left_while_the_run_goes_on(running):
    # On the host and on the joined machine; the run is found without its name.
    for home in ("home", "lily"):
        logs = Command("logs", "--lines", "3", home=home)
        logs.wait_for("lily (cpu): own line")
        first = [line for line in logs.output().splitlines() if "own line" in line]
        assert int(first[0].split()[-1]) > 0 or len(first) < 6  # the last lines, not all
        logs.wait_for(f"own line {int(first[-1].split()[-1]) + 10}")  # and it goes on
        logs.signal(signal.SIGINT)
        code, output = logs.finish(30)
        assert code == 0
        assert "left the logs: run long goes on" in output

        attached = Command("attach", home=home)
        attached.wait_for("run long on lily (cpu")
        attached.wait_for("samples/s")
        attached.wait_for("common line")
        attached.signal(signal.SIGINT)
        code, output = attached.finish(30)
        assert code == 0, output
        assert "detached: run long goes on; come back with: potluck attach long" in output
        assert "where the time went" not in output
    assert running.is_running()

    check_variables(running)
    code, output = Command("logs", "long", "--no-follow", "--machine", "lily", "-n", "2").finish(60)
    assert code == 0
    printed = [line for line in output.splitlines() if line.startswith("lily")]
    assert 2 <= len(printed) <= 6, output  # two of each worker, and what came meanwhile

    code, output = Command("logs", "--machine", "rosa").finish(60)
    assert code == 1
    assert "rosa is not in run long" in output
    code, output = Command("attach", "lonk").finish(60)
    assert code == 1
    assert "there is no run 'lonk'" in output
    assert "did you mean 'long'?" in output

    assert Command("stop", "long").finish(60)[0] == 0
    running.finish(60)
    code, output = Command("attach", "long").finish(60)  # of a run that is over: its last lines and the summary
    assert code == 130
    assert "long: stopped" in output
    assert len([line for line in output.splitlines() if "common line" in line]) <= 20
    code, output = Command("logs").finish(60)
    assert code == 0
    assert "run long is stopped" in output


def test_without_a_host_both_say_what_to_type(workplace):
    for command in ("logs", "attach"):
        code, output = Command(command).finish(60)
        assert code == 1
        assert "this machine has not joined a host" in output
        assert "potluck host" in output
