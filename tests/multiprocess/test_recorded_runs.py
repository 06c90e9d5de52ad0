"""What a joined machine sees of runs that lie on the host, and of a run that goes on: real host, real machines."""

import json
import signal
from pathlib import Path

import pytest

from potluck.core.run_folder import RunFolder
from potluck.events.log import read_records
from potluck.events.types import StepCommitted
from tests.multiprocess.command import SMALL, Command
from tests.multiprocess.test_meeting_door import RealHost, free_port

RUN = "mine"


def elsewhere(*arguments):
    """A command on lily, in a folder without runs."""
    Path("lily-work").mkdir(exist_ok=True)
    return Command(*arguments, home="lily", POTLUCK_RUNS_DIR=str(Path("lily-work").absolute()))


@pytest.mark.timeout(240)
def test_reports_come_from_the_host_and_a_resumed_run_is_not_told_again(workplace):
    host = RealHost(free_port(), "--devices", "cpu", "--threads", "1")
    lily = Command("join", host.invitation, "--name", "lily", "--devices", "cpu", home="lily")
    try:
        lily.wait_for("waiting for work")
        training = elsewhere("train", *SMALL, "--epochs", "20", "--experiment-name", RUN)
        training.wait_for("epoch 1/20 done")
        training.wait_for("epoch 2/20 done")
        assert Command("stop", RUN).finish(60)[0] == 0
        code, output = training.finish(60)
        assert code == 130, output
        assert f"go on with  potluck train --resume --experiment-name {RUN}" in output

        code, told = elsewhere("report", RUN, "--json").finish(60)
        assert code == 0, told
        assert f"run {RUN} is on" in told
        story = json.loads(told[told.index("{") :])
        committed = {
            file.stem: {r.event.step for r in read_records(file) if isinstance(r.event, StepCommitted)}
            for file in RunFolder(workplace / "experiments" / RUN).event_files()
        }
        everyone = set.union(*committed.values())
        [repeat] = story["repeat"]
        assert repeat.endswith(f": potluck train --config {workplace}/experiments/{RUN}/run.yaml")
        for row in story["machines"]:
            [own] = [steps for worker, steps in committed.items() if worker.startswith(f"{row['machine']}-")]
            assert row["steps_away"] == len(everyone - own)
        code, told = elsewhere("report", "nope").finish(60)
        assert code == 1
        assert "there is no run 'nope' in" in told
        assert RUN in told

        last = max(everyone)
        training = elsewhere("train", "--resume", "--epochs", str(last // 19 + 3), "--experiment-name", RUN)
        code, output = training.finish(150)
        assert code == 0, output
        assert output.count(f"going on after step {last} from ") == 1, output
        assert "epoch 1/" not in output
        assert "step 1/" not in output
        for words in ("samples/s here", "samples/s alone", "where the time went", "commit vote: all workers agree"):
            assert words in output
    finally:
        lily.signal(signal.SIGINT)
        lily.finish(60)
        host.end()
