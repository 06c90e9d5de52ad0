"""What a scrape of the host tells: runs that go on and have just ended, each line of their events read once."""

import asyncio

from potluck.meeting.host.metrics import Metrics
from tests.unit.meeting.test_runs_on_machines import record
from tests.unit.report.runs import EVENTFUL, damaged, eventful
from tests.unit.report.test_prometheus import samples


def run_in(folder, **changes):
    return record("rosa").with_(name=folder.name, folder=folder.path, **changes)


def told(metrics, *records):
    return {name: value for (name, labels), value in samples(metrics.scrape(records)).items() if len(labels) == 1}


def test_a_scrape_reads_only_what_is_new(tmp_path, monkeypatch):
    folder = eventful(tmp_path)
    contents = {file: file.read_bytes() for file in folder.event_files()}
    for file, content in contents.items():
        file.write_bytes(content[: len(content) // 2])
    metrics = Metrics()
    before = told(metrics, run_in(folder))["potluck_run_step"]
    (followed,) = metrics._told.values()
    read = followed.run.view.merge.num_events
    assert told(metrics, run_in(folder))["potluck_run_step"] == before
    assert followed.run.view.merge.num_events == read
    for file, content in contents.items():
        file.write_bytes(content)
    assert told(metrics, run_in(folder))["potluck_run_step"] == 210 > before
    assert followed.run.view.merge.num_events == sum(content.count(b"\n") for content in contents.values())


def test_a_run_is_told_of_until_some_minutes_after_its_end(tmp_path):
    now = [0.0]
    metrics = Metrics(clock=lambda: now[0])
    folder = eventful(tmp_path)
    assert told(metrics, run_in(folder, state="finished")) == {}  # it had ended before anybody asked
    assert told(metrics, run_in(folder))["potluck_run_step"] == 210
    assert told(metrics, run_in(folder, state="finished"))["potluck_run_step"] == 210
    now[0] = 200.0
    assert told(metrics, run_in(folder, state="finished"))["potluck_run_step"] == 210
    now[0] = 400.0
    assert told(metrics, run_in(folder, state="finished")) == {}


def test_another_run_of_the_same_name_begins_anew(tmp_path):
    folder = eventful(tmp_path)
    metrics = Metrics()
    told(metrics, run_in(folder))
    for file in folder.event_files():
        file.write_bytes(b"")
    assert told(metrics, run_in(folder, id="2"))["potluck_run_step"] == 0


def test_a_damaged_run_is_named_and_hides_no_other(tmp_path):
    text = Metrics().scrape([run_in(damaged(tmp_path)), run_in(eventful(tmp_path))])
    found = samples(text)
    assert found["potluck_run_damaged", ("damaged",)] == 1
    assert found["potluck_run_step", (EVENTFUL.name,)] == 210


def test_many_who_ask_at_once_are_told_the_same(tmp_path):
    folder = eventful(tmp_path)
    metrics = Metrics()

    async def ask():
        return await asyncio.gather(*(metrics.tell([run_in(folder)]) for _ in range(20)))

    assert len(set(asyncio.run(ask()))) == 1
    (followed,) = metrics._told.values()
    assert followed.run.view.merge.num_events == sum(file.read_bytes().count(b"\n") for file in folder.event_files())
