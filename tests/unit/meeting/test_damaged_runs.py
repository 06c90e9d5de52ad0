"""One run's damaged files are that run's trouble: the host answers, ticks and stops runs as before."""

import asyncio
from dataclasses import replace

import pytest

from potluck.core.errors import ShippingError
from potluck.events.types import Notice, StepCommitted
from potluck.meeting.host import readings
from potluck.meeting.host.troubles import Troubles
from potluck.meeting.transfer import shipping
from potluck.meeting.transfer.shipping import receive
from potluck.report.live_view import LiveView
from tests.unit.events.test_lines import BAD
from tests.unit.meeting.test_runs_on_machines import record
from tests.unit.meeting.test_service import service  # noqa: F401  a fixture
from tests.unit.report.test_live_view import lines


@pytest.mark.parametrize("what", BAD)
def test_every_path_answers_although_a_machine_has_sent_a_bad_line(service, what):  # noqa: F811
    client, app, _ = service
    coordinator = app.state.coordinator
    folder = coordinator.state.find_run("one").folder
    coordinator.put_run(record("rosa", "lily").with_(folder=folder))
    sent = client.post("/runs/one/files", params={"file": "events/rosa-0.jsonl", "offset": 0}, content=BAD[what])
    assert sent.status_code == 200
    (folder / "events" / "zoe-0.jsonl").mkdir()
    assert client.get("/status").json()["runs"][0]["run"] == "one"
    assert client.get("/runs/one").json()["state"] == "running"
    assert client.post("/report", json={"devices": ["cpu"]}).json() == {"taken": True}
    account = client.get("/runs/one/account")
    assert (account.status_code, "rosa-0.jsonl" in account.json()["error"] + account.json()["fix"]) == (400, True)
    assert client.post("/runs/one/news", json={}).status_code == 200
    assert client.get("/metrics").status_code == 200
    asyncio.run(_tick(coordinator))
    assert client.post("/runs/one/stop").json()["state"] in ("stopping", "stopped")


async def _tick(coordinator):
    await coordinator.read_runs()
    coordinator.tick()


def test_a_tick_survives_anything_and_says_it_once(service, monkeypatch):  # noqa: F811
    coordinator = service[1].state.coordinator
    folder = coordinator.state.find_run("one").folder
    told = []
    coordinator.troubles._tell = told.append
    coordinator.put_run(record("rosa", "lily").with_(folder=folder))
    coordinator.put_run(record("rosa").with_(name="other", folder=folder, state="stopping"))
    looked = []

    def fail(path):
        looked.append(path)
        raise RuntimeError("a defect")

    monkeypatch.setattr(readings, "read_pace", fail)
    for name in ("rosa", "lily"):
        coordinator.roster.change(name, last_heard=0.0)
    coordinator._kept = replace(coordinator._kept, began_at=0.0)
    for _ in range(5):
        asyncio.run(_tick(coordinator))
    assert len(looked) == 6  # the other run has ended with the first tick
    assert [text.partition(" (")[0] for text in told] == [
        "run one: RuntimeError: a defect",
        "run other: RuntimeError: a defect",
    ]
    assert coordinator.state.runs["other"].state == "stopped"  # the other run was judged all the same


def test_a_trouble_that_stays_is_said_again_after_ten_minutes():
    now, told = [0.0], []
    troubles = Troubles(told.append, clock=lambda: now[0])
    for now[0] in (0.0, 1.0, 599.0, 601.0, 602.0):
        with troubles.survived("the \x1b[2Jroster"):
            raise ValueError("bad")
    assert len(told) == 2
    assert "\x1b" not in told[0]


def test_a_display_goes_on_after_a_damaged_line():
    view = LiveView()
    step = StepCommitted(step=1, epoch=0, samples=1, loss=1.0, seconds=0.1)
    chunk = lines(Notice(text="first")) + "nonsense\n" + lines(step)
    told = [told.event for told, _ in view.take([("events/lily-0.jsonl", chunk)])]
    assert [type(event) for event in told] == [Notice, StepCommitted]
    assert list(view.damaged) == ["events/lily-0.jsonl"]
    assert "line 2 is damaged" in view.damaged["events/lily-0.jsonl"].args[0]


def test_a_host_takes_so_many_files_of_a_machine_and_so_much_of_each(tmp_path, monkeypatch):
    monkeypatch.setitem(shipping.MOST_FILES, "events", 3)
    monkeypatch.setattr(shipping, "MOST_FILE_BYTES", 100)
    for number in range(3):
        assert receive(tmp_path, f"events/lily-{number}.jsonl", 0, b"x" * 60, machine="lily") == 60
    with pytest.raises(ShippingError, match="takes no more"):
        receive(tmp_path, "events/lily-3.jsonl", 0, b"x", machine="lily")
    with pytest.raises(ShippingError, match="no larger file"):
        receive(tmp_path, "events/lily-1.jsonl", 60, b"x" * 60, machine="lily")
    assert receive(tmp_path, "events/lily-1.jsonl", 60, b"x" * 40, machine="lily") == 100
    assert receive(tmp_path, "events/fern-0.jsonl", 0, b"x", machine="fern") == 1
