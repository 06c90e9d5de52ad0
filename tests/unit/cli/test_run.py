"""`potluck run` before anything is started: its options, and what it says on a machine that has joined nothing."""

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
