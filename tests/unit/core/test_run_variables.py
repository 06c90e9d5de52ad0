"""Variables for all workers of a run: which are taken, which are refused, and with which words."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.environment import read_run_variables, run_variables
from potluck.core.errors import SettingsError
from potluck.core.run_variables import as_words, parse_variables, show_settings, show_word
from potluck.core.settings import combine, make_settings, read_settings_file, settings_to_record


def test_words_become_variables():
    assert parse_variables(["NCCL_DEBUG=INFO", "A=b=c", "EMPTY="]) == {"NCCL_DEBUG": "INFO", "A": "b=c", "EMPTY": ""}


@pytest.mark.parametrize("word", ["NCCL_DEBUG", "=1", "1A=2", "A-B=1", "A B=1", "", "ÄÖ=1", "A\n=1"])
def test_a_word_that_is_no_variable_is_refused(word):
    with pytest.raises(SettingsError, match="cannot be") as told:
        parse_variables([word])
    assert "--env NCCL_DEBUG=INFO" in told.value.fix


@pytest.mark.parametrize("value", ["a\nb", "\x1b[31m", "x" * 4001, "\0"])
def test_a_value_stays_in_one_printable_line(value):
    with pytest.raises(SettingsError, match="control characters"):
        parse_variables([f"A={value}"])


@pytest.mark.parametrize(
    "name",
    ["RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "POTLUCK_SECRET", "POTLUCK_X"],
)
def test_what_potluck_sets_is_refused(name):
    with pytest.raises(SettingsError, match=f"{name}: Potluck sets it"):
        parse_variables([f"{name}=1"])


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONPATH", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "TORCH_LOGS"])
def test_what_a_forked_worker_would_not_read_is_refused_rather_than_ignored(name):
    with pytest.raises(SettingsError, match="is read when Python and torch are loaded") as told:
        parse_variables([f"{name}=1"])
    assert f"export {name}=... before potluck join" in told.value.fix


def test_devices_are_chosen_on_each_machine():
    with pytest.raises(SettingsError) as told:
        parse_variables(["CUDA_VISIBLE_DEVICES=0"])
    assert "potluck join --devices" in told.value.fix


def test_two_values_for_one_name_are_refused_and_too_many_names_too():
    assert parse_variables(["A=1", "A=1"]) == {"A": "1"}
    with pytest.raises(SettingsError, match="two values"):
        parse_variables(["A=1", "A=2"])
    with pytest.raises(SettingsError, match="101 variables"):
        parse_variables([f"A{n}=1" for n in range(101)])


@given(st.lists(st.text(max_size=20), max_size=5))
def test_any_words_are_taken_or_refused_in_a_sentence(words):
    with suppress(SettingsError):  # which has a fix: its type demands one
        assert all(name.isidentifier() and "\n" not in value for name, value in parse_variables(words).items())


def test_variables_are_settings_of_a_run_and_recorded(workplace):
    config = workplace / "a.yaml"
    config.write_text("env:\n  NCCL_DEBUG: INFO\n  NCCL_IB_DISABLE: 1\n")
    settings = combine(read_settings_file(config))
    assert settings_to_record(settings)["env"] == ["NCCL_DEBUG=INFO", "NCCL_IB_DISABLE=1"]
    assert combine(settings_to_record(settings)) == settings
    assert make_settings({"env": ["A=1"]}).env == ("A=1",)
    with pytest.raises(SettingsError, match=r"env in .*a\.yaml cannot set RANK"):
        config.write_text("env: [RANK=1]\n")
        read_settings_file(config)
    with pytest.raises(SettingsError, match="the value True"):
        as_words({"A": True})


def test_a_worker_knows_which_variables_the_user_gave(monkeypatch):
    assert run_variables({}) == {}
    for name, value in run_variables({"A": "1", "B": "x=y"}).items():
        monkeypatch.setenv(name, value)
    assert read_run_variables() == ["A=1", "B=x=y"]


@pytest.mark.parametrize("name", ["HF_TOKEN", "aws_secret_access", "ApiKey", "DB_PASSWORD"])
def test_secret_values_are_not_shown(name):
    assert show_word(f"{name}=a=b") == f"{name}=..."
    assert show_settings({"env": [f"{name}=a"], "seed": 1}) == {"env": [f"{name}=..."], "seed": 1}
    assert show_settings({"env": {name: "a", "A": 1}}) == {"env": {name: "...", "A": "1"}}
    for words in ([f"{name}=hidden", f"{name}=other"], [f"1{name}=hidden"]):
        with pytest.raises(SettingsError) as told:
            parse_variables(words)
        assert "hidden" not in f"{told.value} {told.value.fix}"


def test_other_values_are_shown():
    assert show_word("NCCL_DEBUG=INFO") == "NCCL_DEBUG=INFO"
    assert show_settings({"env": ["A=1"]}) == {"env": ["A=1"]}
    assert show_settings({"seed": 1}) == {"seed": 1}
    assert show_settings({"env": None}) == {"env": None}


def test_tuning_is_a_choice_for_the_whole_run():
    assert parse_variables(["POTLUCK_TUNING=0"]) == {"POTLUCK_TUNING": "0"}, "what potluck run --no-tuning gives"
