"""Benchmarks that need no lab run to their end; tests/lab/test_benchmarks.py has the others."""

import importlib
import sys

import pytest

from tests.benchmark_runs import BY_TESTS_OF_THEIR_OWN, IN_THE_LAB, ON_LOOPBACK, ROOT, run_shortest

pytestmark = pytest.mark.slow
SCRIPTS = sorted(file.stem for file in (ROOT / "benchmarks").glob("*.py") if file.stem != "__init__")


@pytest.mark.parametrize("name", ON_LOOPBACK)
def test_a_benchmark_runs_to_its_end(name, tmp_path):
    into = ["--into", tmp_path] if name == "replay_size" else []
    figures = run_shortest(name, [*ON_LOOPBACK[name], *into], timeout_s=100)
    if name == "many_agents":
        assert figures["holds"], figures


def test_every_benchmark_has_a_test_that_runs_it():
    assert sorted([*ON_LOOPBACK, *IN_THE_LAB, *BY_TESTS_OF_THEIR_OWN]) == SCRIPTS
    for name, test in BY_TESTS_OF_THEIR_OWN.items():
        assert f"benchmarks.{name}" in (ROOT / test).read_text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_benchmark_says_what_it_measures(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as end:
        importlib.import_module(f"benchmarks.{name}").main()
    assert not end.value.code
    assert "usage: " in capsys.readouterr().out
