"""What earlier versions left on a disk: this version reads it and goes on with it (scripts/record-version makes it)."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import potluck
from potluck.core.run_folder import RunFolder
from potluck.meeting.home import Home
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.run_files import RunFiles
from potluck.meeting.host.troubles import Troubles
from potluck.meeting.succession.ballot import BallotFile
from potluck.report.view import read_run

RUNS = Path(__file__).parents[1] / "runs"
VERSIONS = sorted(one.name for one in RUNS.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", one.name))


def test_this_version_is_recorded():
    assert re.match(r"\d+\.\d+\.\d+", potluck.__version__).group() in VERSIONS, "type: scripts/record-version"


@pytest.fixture(params=VERSIONS)
def recorded(request, tmp_path):
    """A copy of what that version left."""
    shutil.copytree(RUNS / request.param, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_run_is_reported(recorded):
    view = read_run(RunFolder(recorded / "recorded"))
    assert view.state.step == view.state.last_step == 20


def test_a_run_goes_on_from_its_checkpoint(recorded):
    command = [sys.executable, "-m", "potluck", "train", "--solo", "--resume", "--epochs", "3"]
    words = ["--model-size", "tiny", "--num-samples", "640", "--experiment-name", "recorded"]
    (recorded / "experiments").mkdir()
    (recorded / "recorded").rename(recorded / "experiments" / "recorded")
    env = {"POTLUCK_HOME": str(recorded / "fresh"), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *words], cwd=recorded, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "steps      30 of 30" in done.stdout
    assert read_run(RunFolder(recorded / "experiments" / "recorded")).state.step == 30


def test_a_hosts_state_is_read(recorded):
    home = Home(recorded / "home")
    assert home.membership().machine == "rosa"
    assert list(MachineRoster(home.host_dir / "roster.json").machines) == ["rosa"]
    (run,) = RunFiles(home.host_dir / "runs", Troubles(print)).read()
    assert (run.name, run.state) == ("recorded", "finished")
    assert BallotFile(home.succession_dir).ballot.host == "rosa"
