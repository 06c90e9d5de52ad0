"""What run.yaml keeps of the command that started a script, and what a resumed run takes from there."""

import pytest
import yaml

from potluck.core.errors import MeetingError, RunFolderError, SettingsError
from potluck.engine.opening import record_settings
from potluck.meeting.host.run_setup import prepare_script
from potluck.meeting.host.starting import is_awaited
from potluck.meeting.wire import Report, RunRequest, RunTask
from tests.unit.meeting.test_host_state import state  # noqa: F401  a fixture
from tests.unit.report.runs import eventful
from tests.unit.report.test_pages import potluck


def prepare(runs_dir, *, resume=True, **more):
    task = RunTask(bundle="0" * 64, entry="train.py", **more)
    folder, task, is_resumed = prepare_script(RunRequest(name="one", resume=resume, task=task), runs_dir)
    assert is_resumed == resume
    # When training begins, the worker on the host completes run.yaml.
    record_settings(folder, {"script": "/other/train.py", "seed": 5}, is_script=True)
    return task, yaml.safe_load(folder.settings_file.read_text())


def test_machines_to_keep_and_variables_are_those_of_the_start_until_others_are_given(tmp_path):
    task, recorded = prepare(tmp_path, resume=False, keep=["lily"], env=["HF_TOKEN=a"])
    assert (recorded["keep"], recorded["env"]) == (["lily"], ["HF_TOKEN=a"])
    task, recorded = prepare(tmp_path)
    assert (task.keep, task.env) == (["lily"], ["HF_TOKEN=a"])
    task, recorded = prepare(tmp_path, env=["HF_TOKEN=b"])
    assert (task.keep, task.env) == (["lily"], ["HF_TOKEN=b"])
    assert (recorded["keep"], recorded["env"]) == (["lily"], ["HF_TOKEN=b"])
    assert prepare(tmp_path)[0].env == ["HF_TOKEN=b"]
    task, recorded = prepare(tmp_path, keep=["rosa"])
    assert task.keep == recorded["keep"] == prepare(tmp_path)[0].keep == ["rosa"]
    assert recorded["script"] == "train.py"
    assert recorded["seed"] == 5


def test_options_of_the_exchange_are_those_of_the_start_until_others_are_given(tmp_path):
    task, recorded = prepare(tmp_path, resume=False, exchange={"exchange": "int8", "loss_price": 1.5})
    assert recorded["command_options"] == task.exchange == {"exchange": "int8", "loss_price": 1.5}
    assert prepare(tmp_path)[0].exchange == {"exchange": "int8", "loss_price": 1.5}
    task, recorded = prepare(tmp_path, exchange={"exchange": "int4"})
    assert recorded["command_options"] == task.exchange == {"exchange": "int4", "loss_price": 1.5}
    with pytest.raises(SettingsError, match="exchange cannot be 'int9'"):
        prepare(tmp_path, exchange={"exchange": "int9"})


def test_a_host_of_an_earlier_release_reads_a_script_without_such_options():
    assert "exchange" not in RunTask(bundle="0" * 64, entry="train.py").model_dump()


def test_a_run_without_them_records_none(tmp_path):
    task, recorded = prepare(tmp_path, resume=False)
    assert not recorded.keys() & {"keep", "env", "plain", "command_options"}
    task, recorded = prepare(tmp_path)
    assert task.keep == task.env == []


def test_machines_to_keep_are_part_of_the_command_that_repeats_a_run(workplace):
    (workplace / "experiments").mkdir()
    folder = eventful(workplace / "experiments", "one")
    folder.settings_file.write_text(yaml.safe_dump({"script": "own.py", "bundle": "0", "keep": ["rosa", "lily"]}))
    assert "repeat it\n  potluck run --keep rosa,lily own.py\n" in potluck("report", "one").output


def test_options_of_the_exchange_are_part_of_the_command_that_repeats_a_run(workplace):
    (workplace / "experiments").mkdir()
    folder = eventful(workplace / "experiments", "one")
    command = {"exchange": "rounds", "round_steps": 32}
    folder.settings_file.write_text(yaml.safe_dump({"script": "own.py", "bundle": "0", "command_options": command}))
    assert "potluck run --exchange rounds --round-steps 32 own.py\n" in potluck("report", "one").output


@pytest.mark.parametrize(
    "task", [RunTask(bundle="0" * 64, entry="train.py", keep=["rosa", "lili"]), RunTask(settings={"keep": ["lili"]})]
)
def test_a_mistyped_machine_to_keep_is_refused_with_a_suggestion_and_one_that_may_join_is_not(state, task):  # noqa: F811
    with pytest.raises(MeetingError, match="no machine is called 'lili'") as told:
        is_awaited(state, RunRequest(task=task), 101.0)
    assert "did you mean 'lily'" in told.value.fix
    assert not is_awaited(state, RunRequest(task=RunTask(settings={"keep": ["lily"]})), 101.0)
    assert not is_awaited(state, RunRequest(task=RunTask(settings={"keep": ["quince"]})), 101.0)
    assert not is_awaited(state, RunRequest(task=RunTask(settings={"keep": 5})), 101.0)


def test_resume_names_a_run_that_is_there(tmp_path):
    task = RunTask(bundle="0" * 64, entry="train.py")
    with pytest.raises(MeetingError, match="which run"):
        prepare_script(RunRequest(resume=True, task=task), tmp_path)
    prepare(tmp_path, resume=False)
    with pytest.raises(RunFolderError, match="there is no run 'on'"):
        prepare_script(RunRequest(name="on", resume=True, task=task), tmp_path)


def test_an_earlier_release_reads_messages_without_shared_data():
    assert "data" not in RunTask(bundle="0" * 64, entry="train.py").model_dump()
    assert "data" not in Report().model_dump()
