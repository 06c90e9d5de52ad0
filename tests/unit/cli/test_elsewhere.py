"""Commands on systems where Potluck is installed without torch."""

import pytest

from potluck.cli import app
from potluck.cli.elsewhere import check_trains_here
from potluck.core.errors import UsageError

ALL = [info.name or info.callback.__name__ for info in app.registered_commands]


def refusal(command, system):
    try:
        check_trains_here(command, system)
    except UsageError as error:
        return error
    return None


def test_linux_runs_every_command():
    assert not [command for command in (*ALL, None) if refusal(command, "linux")]


@pytest.mark.parametrize(("system", "words"), [("win32", "inside WSL2"), ("darwin", "torchft has no build")])
def test_elsewhere_training_is_refused_with_a_way_out(system, words):
    refused = {command: error for command in (*ALL, None) if (error := refusal(command, system))}
    assert {"host", "join", "train", "run"} <= set(refused)
    assert set(refused).isdisjoint({"doctor", "explain", "runs", "report", "compare", None})
    assert all(words in error.args[0] and error.fix for error in refused.values())
