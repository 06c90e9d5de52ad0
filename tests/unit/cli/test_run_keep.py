"""`--keep NAME`, which plans advise: how names are written, and that they reach the engine of every worker."""

import pytest
from typer.testing import CliRunner

from potluck.cli import app
from potluck.cli.placing import Placement
from potluck.core.environment import read_launch
from potluck.core.errors import PotluckError
from potluck.core.settings import make_settings
from potluck.meeting.agent.messages import AgentPlace
from potluck.meeting.agent.worker_environment import worker_environments
from potluck.meeting.home import Home
from potluck.meeting.wire import Assignment, RunTask
from tests.unit.cli.test_run import run
from tests.unit.meeting.test_local_run import GATES, MEMBERSHIP


def test_machines_to_keep_reach_the_engine(tmp_path, monkeypatch):
    place = AgentPlace(home=Home(tmp_path), membership=MEMBERSHIP, gate="gate", threads=None, data_dir=tmp_path)
    task = RunTask(bundle="0" * 64, entry="train.py", keep=["rosa", "lily"], exchange={"exchange": "int4"})
    known = {"run": "one", "run_id": "1", "phase": "go", "task": task, "started_by": "ann@rosa", "workers": [0]}
    known |= {"devices": ["cpu"], "expected": 1, "lighthouse_port": 1, "secret": "s", "runs_dir": None}
    variables = worker_environments(place, Assignment(**known), GATES, tmp_path)[0]
    assert read_launch().keep == ()
    monkeypatch.setenv("POTLUCK_KEEP", variables["POTLUCK_KEEP"])
    assert read_launch().keep == ("rosa", "lily")
    assert variables["POTLUCK_EXCHANGE"] == "int4"


def test_keep_is_refused_where_it_means_nothing(workplace):
    (workplace / "mine.py").write_text("")
    with pytest.raises(PotluckError, match="--plain, where every machine takes part"):
        run("--plain", "--keep", "lily", "mine.py")
    with pytest.raises(PotluckError, match="no meaning with --solo"):
        run("--solo", "--keep", "lily", "mine.py")


@pytest.mark.parametrize("name", ["li ly", "-lily", "lily!"])
def test_a_name_that_no_machine_can_have_is_refused_before_anything_is_sent(workplace, name):
    (workplace / "mine.py").write_text("")
    with pytest.raises(PotluckError, match="no machine is called that") as told:
        run(f"--keep=rosa,{name}", "mine.py")
    assert "rosa,lily" in told.value.fix
    result = CliRunner().invoke(app, ["train", f"--keep={name}"])
    assert "no machine is called that" in str(result.exception)
    with pytest.raises(PotluckError, match="no machine is called that"):
        Placement(machines=name).request(RunTask(settings={}), "rosa")
    with pytest.raises(PotluckError, match="--machines names no machine"):
        Placement(machines=" ").request(RunTask(settings={}), "rosa")


@pytest.mark.parametrize("given", [["rosa,lily"], ["rosa", "lily"], ["rosa, lily", "rosa"], "rosa,lily"])
def test_names_may_have_commas_between_them(given):
    assert make_settings({"keep": given}).keep == ("rosa", "lily")
    assert Placement(machines="rosa, lily,").request(RunTask(settings={}), "rosa").machines == ["rosa", "lily"]
