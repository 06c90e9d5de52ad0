"""A script that is started by itself says which run it is, how it goes and how it ended, and disturbs nothing."""

import subprocess
import sys
import time

import pytest

import potluck
from potluck.engine.telling import ScriptTeller
from potluck.events.log import read_records
from potluck.events.state import RunState
from potluck.events.types import EpochEnded, LinePrinted, Record, StepCommitted
from tests.training import train

SCRIPT = """
import torch, potluck
from torch.utils.data import TensorDataset

run = potluck.start(device="cpu")
model = torch.nn.Linear(2, 1)
model, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
loader = run.loader(TensorDataset(torch.ones(8, 2), torch.ones(8, 1)), global_batch=4)
for epoch in run.epochs(2):
    for x, y in loader:
        run.backward((model(x) - y).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    print("mine", epoch)
"""


def test_it_says_which_run_where_and_how_it_ended(workplace, capfd):
    train("first")
    told = capfd.readouterr()
    lines = told.err.splitlines()
    assert told.out == ""
    assert lines[0] == f"potluck: run first on cpu, folder {workplace / 'experiments' / 'first'}"
    assert "50 samples, global batch 8, 14 steps in 2 epochs" in lines[1]
    assert "first finished after step 14 of 14" in lines[-3]
    assert "samples/s" in lines[-3]
    assert lines[-2].endswith("experiments/first/checkpoints/model_epoch_2.pth")
    assert lines[-1] == "potluck: more about this run: potluck report first"


def test_one_step_in_one_epoch_is_not_plural(workplace, capfd):
    train("first", epochs=1, max_steps=1)
    assert "1 step in 1 epoch\n" in capfd.readouterr().err


def test_quiet_leaves_notices_only(workplace, capfd, monkeypatch):
    train("one", quiet=True)
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("POTLUCK_QUIET", "1")
    train("two", epochs=1, resume=True)
    assert capfd.readouterr().err.startswith("potluck: experiments/two has no whole checkpoint")


def test_a_failure_and_a_way_to_go_on_are_told(workplace, capfd, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py"])
    train("first", epochs=1)
    with pytest.raises(ZeroDivisionError), potluck.start("first", resume=True):
        1 / 0  # noqa: B018
    told = capfd.readouterr().err
    assert "first failed" in told
    assert "potluck: ZeroDivisionError: division by zero" in told
    assert "go on with: potluck run --solo --resume --experiment-name first train.py" in told


def test_a_notebook_is_told_what_to_type_in_a_cell(workplace, capfd, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/env/ipykernel_launcher.py", "-f", "kernel.json"])
    train(None, epochs=1)
    with pytest.raises(ZeroDivisionError), potluck.start("notebook-1", resume=True):
        1 / 0  # noqa: B018
    assert 'go on with: potluck.start("notebook-1", resume=True)' in capfd.readouterr().err


@pytest.mark.parametrize("typed", ["-c", "-", ""])
def test_code_without_a_file_gets_a_run_s_name(workplace, monkeypatch, typed):
    monkeypatch.setattr(sys, "argv", [typed])
    with potluck.start(device="cpu") as run:
        assert run.name == "run-1"


def test_a_long_run_gets_a_line_every_few_seconds_and_no_more(capfd, tmp_path):
    now = [0.0]
    teller = ScriptTeller(tmp_path, clock=lambda: now[0])
    state = RunState(num_epochs=1, last_step=1000)
    for number in range(1, 1001):
        now[0] += 0.0625
        step = StepCommitted(step=number, epoch=0, samples=8, loss=0.5, seconds=0.0625)
        teller(Record(sequence=number, time=now[0], event=step), state)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 12
    assert "epoch 1/1  step 80/1000  loss 0.5000  128 samples/s  57.5 s left" in lines[0]


def test_a_line_of_an_epoch_is_a_line(capfd, tmp_path):
    now = [0.0]
    teller = ScriptTeller(tmp_path, clock=lambda: now[0])
    state = RunState(num_epochs=2, last_step=4)
    now[0] += 6
    teller(Record(sequence=1, time=now[0], event=EpochEnded(epoch=0, step=2, samples=8, loss=0.5, seconds=6.0)), state)
    step = StepCommitted(step=3, epoch=1, samples=8, loss=0.5, seconds=0.1)
    teller(Record(sequence=2, time=now[0], event=step), state)
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_it_costs_next_to_nothing(tmp_path):
    """Steps of 5 ms: a fiftieth of one is 100 us."""
    teller, state = ScriptTeller(tmp_path), RunState(num_epochs=1, last_step=10_000)
    step = StepCommitted(step=1, epoch=0, samples=8, loss=0.5, seconds=0.005)
    record = Record(sequence=1, time=0.0, event=step)
    began = time.process_time()
    for _ in range(10_000):
        teller(record, state)
    assert (time.process_time() - began) / 10_000 < 1e-4


def test_a_closed_stderr_stops_nothing(workplace, monkeypatch):
    class Gone:
        def write(self, _):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    _, step = train("first", epochs=1)
    assert step == 7


@pytest.mark.slow
def test_run_solo_runs_a_script_on_a_machine_that_has_joined_nothing(workplace):
    (workplace / "mine.py").write_text(SCRIPT)
    command = [sys.executable, "-c", "from potluck.cli import main; main()", "run"]
    command += ["--solo", "--experiment-name", "named", "mine.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "mine 0\nmine 1\n"  # the script's own words, as they are
    assert "potluck: run named on cpu" in done.stderr
    assert (workplace / "experiments" / "named" / "checkpoints" / "model_epoch_2.pth").is_file()


def test_a_line_for_all_workers_is_in_the_events_with_its_place(workplace, capfd):
    with potluck.start("first", quiet=True) as run:
        run.print("one")
        run.print(2)
    lines = [record.event for file in run.folder.event_files() for record in read_records(file)]
    told = [(line.text, line.step, line.number) for line in lines if isinstance(line, LinePrinted)]
    assert told == [("one", 0, 0), ("2", 0, 1)]
    assert capfd.readouterr().out == "one\n2\n"
