"""How a plain run ended: the host writes it into the run's folder, and report, runs and compare read it there."""

import json
import shutil

import pytest
import yaml

from potluck.core.run_end import RunEnd, read_end, write_end
from potluck.core.run_folder import RunFolder
from potluck.events.log import EventLog
from potluck.events.types import RunEnded, RunStarted, WorkersUsed
from potluck.meeting.host.plain_runs import judge_plain
from potluck.meeting.host.run_files import RunFiles
from potluck.meeting.host.run_setup import script_settings
from potluck.meeting.host.troubles import Troubles
from potluck.report.view import read_run
from tests.unit.meeting.test_plain_runs import ERROR, PLAIN, plain, told
from tests.unit.report.test_pages import potluck


@pytest.fixture
def folder(workplace):
    """A plain run of rosa and lily, of which only rosa has written an end: the host stopped its worker."""
    folder = RunFolder(workplace / "experiments" / "one")
    folder.path.mkdir(parents=True)
    folder.settings_file.write_text(yaml.safe_dump(script_settings(PLAIN)))
    for number, machine in enumerate(("rosa", "lily")):
        log = EventLog(folder.event_file(machine, number))
        log.append(
            RunStarted(
                run="one", machine=machine, worker=number, process_id=1, device="cpu", mixed_precision="no", versions={}
            )
        )
        log.append(
            WorkersUsed(seconds=5.0, cores=4, workers_cpu_s=5.0, machine_cpu_s=5.0, sent_bytes=0, received_bytes=0)
        )
        if machine == "rosa":
            log.append(RunEnded(reason="stopped", step=0))
        log.close()
    return folder


def shown():
    runs, report = potluck("runs").output, potluck("report", "one").output
    states = {row["run"]: row["state"] for row in json.loads(potluck("runs", "--json").output)}
    assert states["one"] in runs
    return states["one"], report


def test_a_run_that_lost_a_machine_has_failed_everywhere_and_names_the_machine(folder):
    files = RunFiles(folder.path.parents[1] / "host", Troubles(pytest.fail))
    run = plain("rosa", "lily").with_(folder=folder.path)
    files.save(run)
    assert shown()[0] == "running"
    run = judge_plain(told(run, "rosa", "stopped"), frozenset({"lily"}))
    files.save(run)
    state, report = shown()
    assert state == run.state == "failed"
    assert "one: failed" in report
    assert "lily was lost: the host hears nothing from it any more" in report
    data = json.loads(potluck("report", "one", "--json").output)
    assert (data["status"], data["message"]) == ("failed", run.message)
    shutil.copytree(folder.path, folder.path.with_name("two"))
    compared = json.loads(potluck("compare", "one", "two", "--json").output)
    assert [row["status"] for row in compared["runs"]] == ["failed", "failed"]
    write_end(RunFolder(folder.path.with_name("gone")), RunEnd("failed", ""))  # a folder that was deleted stays so
    assert not folder.path.with_name("gone").exists()


def test_without_the_hosts_word_a_machine_that_tells_of_no_end_was_lost(folder):
    state, report = shown()
    assert state == "interrupted"
    assert "one: interrupted" in report
    assert "lily was lost" in report


def test_a_run_that_the_user_stopped_has_no_cause(folder):
    write_end(folder, RunEnd("stopped", ""))
    state, report = shown()
    assert state == "stopped"
    assert "lost" not in report


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (f"lily: {ERROR}", "lily: ValueError: no data"),
        (f"lily: {ERROR}\n  fix: find some", "lily: ValueError: no data"),
        ("lily: no torch\n  fix: pip install torch", "lily: no torch\n  fix: pip install torch"),
        ("", ""),
    ],
)
def test_of_a_traceback_the_last_line_is_told(folder, message, cause):
    write_end(folder, RunEnd("failed", message))
    assert read_run(folder).plain_cause == cause


@pytest.mark.parametrize("text", ["", "[", "{}", '{"state": "gone", "message": ""}', '{"state": "failed"}', "[" * 9999])
def test_a_damaged_file_is_no_end(folder, text):
    folder.end_file.write_text(text)
    assert read_end(folder) is None
    assert read_run(folder).status == "interrupted"
