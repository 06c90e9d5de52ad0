"""Reports and comparisons of a real run: what they say, and that a file needs nothing but itself."""

import csv
import json
import re
import sys
from io import StringIO

import pytest
import yaml
from typer.testing import CliRunner

from potluck.cli import app
from potluck.report.compare import Comparison, RunFigures, compare, verdict
from potluck.report.view import read_run
from tests.unit.report.runs import crashed, eventful, half_written

MOST_BYTES = 3_000_000


def potluck(*arguments, fails=False):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "160"})
    assert (result.exit_code != 0) == fails, result.output
    return result


@pytest.fixture
def runs_dir(workplace):
    (workplace / "experiments").mkdir()
    eventful(workplace / "experiments")
    return workplace / "experiments"


def test_the_terminal_tells_result_time_machines_faults_and_plans(runs_dir):
    told = potluck("report", "eventful").output
    for words in (
        "eventful: finished",
        "simple_cnn",
        "210 of 336",
        "437.2 samples/s, the sum of fern, lily and rosa when each trains alone, for the time that each was here",
        "efficiency 71.1 % of that sum",
        "that others lost by waiting for it",
        "computing slower than alone",
        "lily: back at step 178; 17 steps were done without it",
        "machines that came and went cost the others 1.4 s of waiting",
        "potluck train --config",
    ):
        assert words in told


@pytest.mark.parametrize(
    ("settings", "command"),
    [
        ({"script": "own script.py", "arguments": ["--epochs", "3"]}, "python 'own script.py' --epochs 3"),
        ({"script": "own.py", "arguments": [], "bundle": "abc", "seed": 5}, "potluck run own.py"),
        ({"script": "own.py"}, "python own.py"),
        ({"script": "own.py", "env": ["A=b c"]}, "potluck run --solo --env 'A=b c' own.py"),
        ({"script": "own.py", "bundle": "abc", "env": ["A=1", "B=2"]}, "potluck run --env A=1 --env B=2 own.py"),
    ],
)
def test_a_script_is_repeated_with_what_was_typed(runs_dir, settings, command):
    (runs_dir / "eventful" / "run.yaml").write_text(yaml.safe_dump(settings))
    assert f"repeat it\n  {command}\n" in potluck("report", "eventful").output


def test_runs_and_report_and_comparison_show_the_same_loss_under_the_same_word(runs_dir):
    crashed(runs_dir, "other")
    assert "last loss  0.1545 at step 210" in potluck("report", "eventful").output
    headings, *lines = potluck("runs").output.splitlines()
    assert "last loss" in headings
    assert "0.1545" in next(line for line in lines if line.startswith("eventful"))
    told = potluck("compare", "eventful", "other").output
    assert re.search(r"last loss +0\.1545", told)


def test_as_json_it_is_whole(runs_dir):
    story = json.loads(potluck("report", "--json").output)
    assert story["name"] == "eventful"
    assert story["account"]["num_steps"] == 130
    assert [row["machine"] for row in story["machines"]] == ["lily", "fern", "rosa"]


@pytest.mark.parametrize("make", [eventful, crashed, half_written])
def test_a_file_is_small_and_asks_for_nothing_else(runs_dir, make):
    folder = make(runs_dir, "mine")
    potluck("report", folder.name, "--html", "report.html")
    page = (runs_dir.parent / "report.html").read_text()
    assert len(page.encode()) < MOST_BYTES
    assert "<script" not in page
    linked = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?!#)([^"')\s]+)""", page)
    assert linked == []
    assert "default-src 'none'" in page


def test_names_in_a_page_are_text(runs_dir):
    settings = runs_dir / "eventful" / "run.yaml"
    settings.write_text(yaml.safe_dump({"model": "<script>alert(1)</script>"}))
    potluck("report", "eventful", "--html", "report.html")
    assert "<script" not in (runs_dir.parent / "report.html").read_text()


def test_without_the_extra_the_fix_says_what_to_install(runs_dir, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    error = potluck("report", "eventful", "--html", "report.html", fails=True).exception
    assert "vl_convert" in str(error)
    assert "-m pip install" in error.fix
    assert "vl-convert-python" in error.fix


def test_an_unknown_run_is_answered_with_the_nearest(runs_dir):
    error = potluck("report", "eventfull", fails=True).exception
    assert "eventful" in error.fix


def test_without_runs_a_report_says_how_to_begin(workplace):
    for arguments in (["report"], ["report", "nope"], ["compare", "one", "two"]):
        error = potluck(*arguments, fails=True).exception
        assert "there is no run" in str(error)
        assert "--resume" not in f"{error} {error.fix}"
        assert error.fix == "start one with: potluck train"


def other_run(runs_dir, name, **settings):
    folder = crashed(runs_dir, name)
    recorded = yaml.safe_load(folder.settings_file.read_text())
    folder.settings_file.write_text(yaml.safe_dump({**recorded, **settings}))
    return folder


def test_runs_stand_side_by_side_with_what_differed(runs_dir):
    other_run(runs_dir, "other", learning_rate=0.1)
    table = potluck("compare", "eventful", "other").output
    for words in (
        "eventful",
        "other",
        "interrupted",
        "samples/s",
        "of its own estimate",
        "learning_rate",
        "0.05",
        "0.1",
    ):
        assert words in table
    found = json.loads(potluck("compare", "eventful", "other", "--json").output)
    assert found["differing"] == {"learning_rate": ["0.05", "0.1"]}
    assert [run["run"] for run in found["runs"]] == ["eventful", "other"]
    lines = list(csv.DictReader(StringIO(potluck("compare", "eventful", "other", "--csv").output)))
    assert [line["learning_rate"] for line in lines] == ["0.05", "0.1"]
    assert float(lines[0]["fault_s"]) > 1.0 > float(lines[1]["fault_s"])
    potluck("compare", "eventful", "other", "--html", "both.html")
    assert "is fastest:" in (runs_dir.parent / "both.html").read_text()


def test_without_a_target_every_run_reaches_it(runs_dir):
    views = [read_run(eventful(runs_dir, "one")), read_run(other_run(runs_dir, "two"))]
    found = compare(views)
    assert all(run.time_to_loss_s is not None for run in found.runs)
    assert compare(views, target_loss=0.0).runs[0].time_to_loss_s is None


def test_one_run_is_no_comparison(runs_dir):
    assert "two" in str(potluck("compare", "eventful", "eventful", fails=True).exception)


def figures(**speeds):
    empty = dict.fromkeys(RunFigures.__dataclass_fields__)
    runs = [RunFigures(**{**empty, "run": name, "samples_per_s": speed}) for name, speed in speeds.items()]
    return Comparison(runs=tuple(runs), target_loss=None, target_accuracy=None, differing={})


def test_the_verdict_names_the_fastest_and_does_not_tell_equal_ones_apart():
    assert (
        verdict(figures(static=100.0, proportional=199.0, dynamic=200.0))
        == "dynamic and proportional are equally fast: 200.0 samples/s, 2.00 times static"
    )
    assert verdict(figures(one=100.0, two=150.0)) == "two is fastest: 150.0 samples/s, 1.50 times one"
    assert verdict(figures(one=0.0, two=0.0)) == "no run has committed a step"


def test_the_verdict_stands_first(runs_dir):
    crashed(runs_dir, "other")
    assert potluck("compare", "eventful", "other").output.startswith("other is fastest: ")
