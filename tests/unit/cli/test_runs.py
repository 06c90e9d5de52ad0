import json

import pytest
from typer.testing import CliRunner

from potluck.cli import app
from potluck.core.run_folder import RunFolder
from potluck.events.log import EventLog
from potluck.events.types import RunEnded, StepCommitted, TrainingBegan
from potluck.report.view import read_run
from tests.unit.report.runs import resumed


def make_run(runs_dir, name, *, ended=None, keep_open=False):
    folder = RunFolder(runs_dir / name)
    log = EventLog(folder.event_file("rosa", 0))
    folder.settings_file.write_text("model: resnet18\ndataset: cifar10\n")
    log.append(TrainingBegan(num_samples=10, global_batch=5, steps_per_epoch=2, num_epochs=2, last_step=4))
    log.append(StepCommitted(step=3, epoch=1, samples=5, loss=0.25, seconds=0.5))
    if ended:
        log.append(RunEnded(reason=ended, step=3))
    if keep_open:
        return log
    log.close()
    return None


def runs(*arguments):
    result = CliRunner().invoke(app, ["runs", *arguments], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    return result.output


def test_each_state_is_told(workplace):
    make_run(workplace / "experiments", "done", ended="finished")
    make_run(workplace / "experiments", "killed")
    log = make_run(workplace / "experiments", "live", keep_open=True)
    rows = json.loads(runs("--json"))
    table = runs()
    log.close()
    assert [(row["run"], row["state"]) for row in rows] == [
        ("done", "finished"),
        ("killed", "interrupted"),
        ("live", "running"),
    ]
    assert rows[0]["step"] == 3
    for word in ("done", "finished", "resnet18", "cifar10", "3/4", "0.2500", "10", "interrupted", "running"):
        assert word in table


def test_an_empty_folder_says_how_to_begin(workplace):
    assert "potluck train" in runs()
    assert runs("--json").strip() == "[]"


def test_another_folder_can_be_listed(workplace):
    make_run(workplace / "elsewhere", "one", ended="stopped")
    assert "one" in runs("elsewhere")


def test_one_damaged_run_does_not_hide_the_others(workplace):
    make_run(workplace / "experiments", "good", ended="finished")
    make_run(workplace / "experiments", "bad", ended="finished")
    (workplace / "experiments" / "bad" / "run.yaml").write_text("a: [1")
    assert {row["run"]: row["state"] for row in json.loads(runs("--json"))} == {"bad": "damaged", "good": "finished"}


def test_a_run_that_moved_is_where_its_newest_events_are(workplace):
    make_run(workplace / "experiments", "moved")
    log = EventLog(RunFolder(workplace / "experiments" / "moved").event_file("aaa", 0))
    log.append(StepCommitted(step=30, epoch=1, samples=5, loss=0.25, seconds=0.5))
    log.close()
    assert json.loads(runs("--json"))[0]["step"] == 30


def test_a_benched_machine_that_has_the_last_word_does_not_turn_the_run_back(workplace):
    folder = RunFolder(workplace / "experiments" / "benched")
    make_run(workplace / "experiments", "benched")
    for machine, steps in (("lily", range(4, 9)), ("rosa", ())):  # rosa's last step is 3
        log = EventLog(folder.event_file(machine, 0))
        for step in steps:
            record = log.append(StepCommitted(step=step, epoch=1, samples=5, loss=1 / step, seconds=0.5))
        log.append(RunEnded(reason="finished", step=8))
        log.close()
    rosa = folder.event_file("rosa", 0)
    rosa.write_text(rosa.read_text().replace(f'"time":{int(record.time)}', f'"time":{int(record.time) - 100}'))
    (row,) = json.loads(runs("--json"))
    assert (row["step"], row["loss"], row["state"]) == (8, 0.125, "finished")


def test_the_list_has_the_speed_that_the_report_has(workplace):
    (workplace / "experiments").mkdir()
    folder = resumed(workplace / "experiments")
    speed = read_run(folder).merge.samples_per_s
    assert json.loads(runs("--json"))[0]["samples_per_s"] == pytest.approx(speed, rel=1e-4)
