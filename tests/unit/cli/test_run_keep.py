"""`potluck run --keep NAME`, which plans advise: it reaches the engine of every worker."""

import pytest

from potluck.core.environment import read_launch
from potluck.core.errors import PotluckError
from potluck.meeting.agent.messages import AgentPlace
from potluck.meeting.agent.worker_environment import worker_environments
from potluck.meeting.home import Home
from potluck.meeting.wire import Assignment, RunTask
from tests.unit.cli.test_run import run
from tests.unit.meeting.test_local_run import GATES, MEMBERSHIP


def test_machines_to_keep_reach_the_engine(tmp_path, monkeypatch):
    place = AgentPlace(home=Home(tmp_path), membership=MEMBERSHIP, gate="gate", threads=None, data_dir=tmp_path)
    task = RunTask(bundle="0" * 64, entry="train.py", keep=["rosa", "lily"])
    known = {"run": "one", "run_id": "1", "phase": "go", "task": task, "started_by": "ann@rosa", "workers": [0]}
    known |= {"devices": ["cpu"], "expected": 1, "lighthouse_port": 1, "secret": "s", "runs_dir": None}
    variables = worker_environments(place, Assignment(**known), GATES, tmp_path)[0]
    assert read_launch().keep == ()
    monkeypatch.setenv("POTLUCK_KEEP", variables["POTLUCK_KEEP"])
    assert read_launch().keep == ("rosa", "lily")


def test_keep_is_refused_where_it_means_nothing(workplace):
    (workplace / "mine.py").write_text("")
    with pytest.raises(PotluckError, match="--plain, where every machine takes part"):
        run("--plain", "--keep", "lily", "mine.py")
    with pytest.raises(PotluckError, match="no meaning with --solo"):
        run("--solo", "--keep", "lily", "mine.py")
