"""--resume-from on joined machines: the file is on the machine that types the command, and reaches every machine."""

import re
import signal
from pathlib import Path

import pytest

from potluck.events.log import read_records
from potluck.events.types import RunResumed, StepCommitted
from tests.multiprocess.command import SMALL, Command
from tests.multiprocess.test_meeting_door import RealHost, free_port


def events(run, kind):
    files = sorted(Path("experiments", run, "events").glob("*.jsonl"))
    return {file.stem: [one.event for one in read_records(file) if isinstance(one.event, kind)] for file in files}


@pytest.mark.timeout(300)
def test_a_run_begins_with_a_file_of_the_machine_that_types(workplace):
    host = RealHost(free_port(), "--devices", "cpu", "--threads", "1")
    lily = Command("join", host.invitation, "--name", "lily", "--devices", "cpu", "--threads", "1", home="lily")
    try:
        lily.wait_for("waiting for work")
        code, output = Command("train", *SMALL, "--epochs", "1", "--experiment-name", "first").finish()
        assert code == 0, output
        (made,) = Path("experiments", "first", "checkpoints").glob("model_epoch_1.pth")
        mine = workplace / "mine.pth"  # any name, and in no run's folder
        mine.write_bytes(made.read_bytes())

        def train(*more):
            return Command("train", *SMALL, "--epochs", "2", "--resume-from", *more, home="lily").finish()

        code, output = train(mine, "--experiment-name", "second")
        assert code == 0, output
        assert re.search(r"sending .*mine\.pth \(\d+\.\d MB\) to rosa, for all machines", output)
        num_steps = -(-300 // 16)
        resumed = events("second", RunResumed)
        assert {name: [one.step for one in told] for name, told in resumed.items()} == {
            name: [num_steps] for name in resumed
        }
        assert {name.partition("-")[0] for name in resumed} == {"rosa", "lily"}
        committed = events("second", StepCommitted).values()
        assert {told[0].step for told in committed} == {num_steps + 1}
        assert {one.step for told in committed for one in told} == set(range(num_steps + 1, 2 * num_steps + 1))
        assert not list(Path("home", "host", "states").iterdir())

        damaged = workplace / "damaged.pth"
        damaged.write_bytes(mine.read_bytes()[:-2000] + bytes(1000) + mine.read_bytes()[-1000:])
        for file, error in (("absent.pth", "there is no checkpoint absent.pth"), (damaged, "checksum does not match")):
            code, output = train(file, "--experiment-name", "third")
            assert code == 1, output
            assert error in output
            assert not Path("experiments", "third").exists()

        # Of another model: every worker says so, and the run fails instead of waiting for one that cannot start.
        code, output = train(mine, "--experiment-name", "fourth", "--model-size", "small")
        assert code == 1, output
        assert "error: run fourth failed" in output, output  # on one machine, or on both
        assert "the checkpoint is of another model or optimizer" in output, output
        assert "use the model, size and optimizer that the run began with" in output
    finally:
        lily.signal(signal.SIGINT)
        lily.finish(60)
        host.end()
