"""`potluck run` before anything is started: its options, and what it says on a machine that has joined nothing."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from potluck.cli import app
from potluck.core.errors import PotluckError


def run(*arguments):
    result = CliRunner().invoke(app, ["run", *arguments])
    if isinstance(result.exception, PotluckError):
        raise result.exception
    return result


def test_a_machine_that_has_joined_nothing_is_told_of_both_ways(workplace):
    (workplace / "mine.py").write_text("")
    with pytest.raises(PotluckError, match="has not joined a host") as told:
        run("mine.py", "--epochs", "3")
    assert "potluck run --solo mine.py" in told.value.fix
    assert "potluck join LINE" in told.value.fix


def test_an_option_is_never_taken_for_the_script(workplace):
    result = run("--sollo", "mine.py")
    assert result.exit_code == 2
    assert "--sollo" in result.output
    with pytest.raises(PotluckError, match=r"there is no script other\.py"):
        run("--solo", "other.py", "--solo")


def test_solo_takes_no_options_about_other_machines(workplace):
    (workplace / "mine.py").write_text("")
    with pytest.raises(PotluckError, match="on this machine alone"):
        run("--solo", "--not-here", "mine.py")
    with pytest.raises(PotluckError, match="which run"):
        run("--solo", "--resume", "mine.py")
    with pytest.raises(PotluckError, match="there is no run 'nope'"):
        run("--solo", "--resume", "--experiment-name", "nope", "mine.py")


def test_a_run_name_with_an_accent_is_refused_with_the_letters_that_are_not(workplace):
    (workplace / "mine.py").write_text("")
    with pytest.raises(PotluckError, match="cannot name a run") as told:
        run("--solo", "--experiment-name", "été", "mine.py")
    assert "a to z" in told.value.fix


def test_underscores_are_dashes_before_the_script_and_the_scripts_own_after_it(workplace):
    (workplace / "mine.py").write_text("import sys; print(sys.argv[1:])")
    with pytest.raises(PotluckError, match="has not joined a host"):
        run("--experiment_name", "one_run", "mine.py", "--max_steps", "3")
    command = [
        sys.executable,
        "-m",
        "potluck",
        "run",
        "--solo",
        "--experiment_name",
        "one_run",
        "mine.py",
        "--max_steps=3",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "['--max_steps=3']\n"


def test_devices_are_chosen_for_a_run_on_this_machine_alone(workplace):
    (workplace / "mine.py").write_text("")
    with pytest.raises(PotluckError, match="for all joined machines") as told:
        run("--devices", "cpu,cpu", "mine.py")
    assert "--solo --devices cpu,cpu" in told.value.fix
    assert "potluck join --devices cpu,cpu" in told.value.fix


def test_a_variable_that_no_worker_may_get_is_refused_before_anything_is_sent(workplace):
    (workplace / "mine.py").write_text("")
    with pytest.raises(PotluckError, match="RANK: Potluck sets it"):
        run("--env", "RANK=1", "mine.py")
    with pytest.raises(PotluckError, match="LD_PRELOAD: it is read when"):
        run("--solo", "--env", "LD_PRELOAD=evil.so", "mine.py")


def test_a_name_is_refused_where_there_is_no_run_folder(workplace):
    (workplace / "mine.py").write_text("")
    with pytest.raises(PotluckError, match="--plain --solo makes none") as told:
        run("--plain", "--solo", "--experiment-name", "first", "mine.py")
    assert told.value.fix == "leave --experiment-name out"


def test_a_folder_is_no_script(workplace):
    (workplace / "project").mkdir()
    with pytest.raises(PotluckError, match="project is a folder, not a script") as told:
        run("--plain", "--solo", "project")
    assert "project/train.py" in told.value.fix


def test_a_card_that_is_not_here_is_refused_before_the_script_trains_on_the_cpu(workplace):
    (workplace / "mine.py").write_text("")
    with pytest.raises(PotluckError, match="there is no cuda:99 on this machine; torch finds ") as told:
        run("--plain", "--solo", "--devices", "cuda:99", "mine.py")
    assert "potluck doctor" in told.value.fix
