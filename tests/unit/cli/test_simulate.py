"""potluck simulate: odd values of its options, each of which ends in a run or in a sentence."""

import json

import pytest
from typer.testing import CliRunner

from potluck.cli import app
from potluck.core.errors import PotluckError
from potluck.measuring.profile_store import StoredProfile
from potluck.planning.costs import ComputeProfile


@pytest.fixture
def simulate(workplace, monkeypatch):
    monkeypatch.setenv("POTLUCK_HOME", str(workplace / "home"))
    files = []
    for name, per_sample_s in (("oak", 0.001), ("elm", 0.002)):
        stored = StoredProfile(
            machine=name,
            device="cpu",
            model="simple_cnn-tiny",
            precision="no",
            gradient_bytes=1_000_000,
            compute=ComputeProfile(fixed_s=0.001, per_sample_s=per_sample_s),
        )
        files.append(workplace / f"{name}.json")
        files[-1].write_text(stored.model_dump_json())
    first = ["simulate", *map(str, files), "--model-size", "tiny", "--solo", "--steps", "30", "--json"]

    def simulate(*arguments):
        return CliRunner().invoke(app, [*first, *arguments], env={"COLUMNS": "160"})

    return simulate


def test_a_run_on_paper_of_machines_whose_links_nobody_measured_says_so(simulate):
    done = simulate()
    assert json.loads(done.stdout)["steps"] == 30
    assert "nobody measured the link of oak, elm" in done.stderr or "elm, oak" in done.stderr
    assert "nobody measured" not in simulate("--link", "oak=1gbit", "--link", "elm=1gbit").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--pauses", "inf"],
        ["--pauses", "1e30"],
        ["--losses", "inf"],
        ["--losses", "nan"],
        ["--seed", "-1"],
        ["--spread", "nan"],
        ["--packet-loss", "1"],
        ["--keep", "rosa"],
        ["--link", "oak=1gbit", "--link", "oak=2gbit"],
        ["--uplink", "10mbit"],
        ["--site", "far=elm"],
        ["--slow", "oak=0.3@20-10"],
        ["--lose", "oak@31"],
        ["--lose", "oak@3", "--lose", "elm@4"],
        ["--topology", "tree", "--exchange", "int8"],
        ["--switch", "nan"],
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(simulate, arguments):
    done = simulate(*arguments)
    assert done.exit_code == 2 or isinstance(done.exception, PotluckError)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--pauses", "1e6"],
        ["--losses", "1e6"],
        ["--spread", "1"],
        ["--packet-loss", "0.5"],
        ["--global-batch", "1"],
        ["--steps", "1"],
        ["--slow", "oak=3@1-30"],
        ["--lose", "oak@1+0s"],
        ["--site", "far=elm", "--uplink", "1mbit"],
        ["--without", "oak"],
        ["--cold", "--exchange", "auto"],
    ],
)
def test_what_is_odd_but_possible_is_simulated(simulate, arguments):
    done = simulate(*arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["samples_per_s"] > 0
