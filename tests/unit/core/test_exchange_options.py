"""Options of the exchange between machines: wrong values are refused wherever they are written, with what to type."""

import pytest

import potluck
from potluck.cli.placing import run_solo
from potluck.core.environment import exchange_variables, read_launch
from potluck.core.errors import PotluckError, SettingsError
from potluck.core.exchange_options import check_exchange_options
from potluck.core.settings import make_settings
from tests.unit.cli.test_run import run

WRONG = [
    ("exchange", "int9", "int8"),
    ("loss_price", -1, "percent"),
    ("loss_price", "much", "percent"),
    ("loss_price", float("nan"), "percent"),
    ("round_steps", 0, "at least 1"),
    ("round_steps", "2.5", "at least 1"),
    ("warm_up_steps", -1, "at least 0"),
]


@pytest.mark.parametrize(("name", "value", "fix"), WRONG)
def test_a_wrong_value_is_refused_with_the_fix(name, value, fix, workplace, monkeypatch):
    with pytest.raises(SettingsError, match=f"{name} cannot be") as told:
        potluck.start("one", **{name: value})
    assert fix in told.value.fix
    with pytest.raises(SettingsError, match=f"{name} in the command line cannot be"):
        make_settings({name: value})
    monkeypatch.setenv(f"POTLUCK_{name.upper()}", str(value))
    with pytest.raises(SettingsError, match=f"POTLUCK_{name.upper()} cannot be"):
        potluck.start("one")
    assert not (workplace / "experiments").exists()


def test_values_are_read_with_their_types():
    given = {"exchange": "rounds", "loss_price": "2", "round_steps": "32", "warm_up_steps": 0}
    read = check_exchange_options(given)
    assert read == {"exchange": "rounds", "loss_price": 2.0, "round_steps": 32, "warm_up_steps": 0}
    assert check_exchange_options({"exchange": None}) == {}
    with pytest.raises(SettingsError, match="no option of the exchange") as told:
        check_exchange_options({"round_step": 3})
    assert "round_steps" in told.value.fix


def test_a_command_tells_its_options_to_the_script_on_every_machine(workplace, monkeypatch):
    for name, value in exchange_variables({"exchange": "int4", "round_steps": 16}).items():
        monkeypatch.setenv(name, value)
    assert dict(read_launch().exchange) == {"exchange": "int4", "round_steps": "16"}
    with potluck.start("one", exchange="int8", loss_price=2) as started:
        recorded = started.folder.settings_file.read_text()
    assert "exchange: int4\nloss_price: 2.0\nround_steps: 16" in recorded
    assert "command_options:\n  exchange: int4\n  round_steps: 16" in recorded


def test_a_plain_script_has_no_exchange_to_choose(workplace):
    (workplace / "mine.py").write_text("")
    with pytest.raises(PotluckError, match="--exchange has no meaning with --plain"):
        run("--plain", "--exchange", "int8", "mine.py")
    with pytest.raises(PotluckError, match="--round-steps cannot be 0"):
        run("--round-steps", "0", "mine.py")


def test_a_script_alone_gets_the_options_and_keeps_them_when_it_resumes(workplace, monkeypatch):
    seen = []
    monkeypatch.setattr("os.execve", lambda _, __, variables: seen.append(variables))
    run_solo(workplace / "mine.py", [], "one", [], {"exchange": "fp16"}, resume=False)
    assert seen[-1]["POTLUCK_EXCHANGE"] == "fp16"
    (workplace / "experiments" / "one").mkdir(parents=True)
    recorded = "script: mine.py\ncommand_options: {exchange: fp16, round_steps: 8}\n"
    (workplace / "experiments" / "one" / "run.yaml").write_text(recorded)
    run_solo(workplace / "mine.py", [], "one", [], {"exchange": "int8"}, resume=True)
    assert (seen[-1]["POTLUCK_EXCHANGE"], seen[-1]["POTLUCK_ROUND_STEPS"]) == ("int8", "8")
