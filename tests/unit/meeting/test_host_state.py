"""The host's decisions: functions from one frozen state to the next, which read no disk and change nothing else."""

import asyncio
import builtins
import os

import pytest

from potluck.meeting.host import state as decisions
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.readings import RunReading
from potluck.meeting.host.roster import AWAY_AFTER_S, Machine, MachineRoster
from potluck.meeting.host.state import HostState
from potluck.meeting.transfer.run_tail import Pace
from potluck.meeting.wire import Report, WorkerReport
from tests.unit.meeting.test_doorway import facts
from tests.unit.meeting.test_runs_on_machines import record

NAMES = ("rosa", "lily", "fern")


@pytest.fixture
def state():
    machines = {
        name: Machine(facts=facts(name), number=number, credential_hash="0" * 64, devices=["cpu"], last_heard=100.0)
        for number, name in enumerate(NAMES, start=1)
    }
    return HostState(host="rosa", began_at=0.0, machines=machines, runs={"one": record("rosa", "lily")})


@pytest.fixture
def no_disk(monkeypatch):
    def refuse(*arguments, **more):
        raise AssertionError(f"a decision reads the disk: {arguments}")

    for module, names in ((builtins, ["open"]), (os, ["open", "stat", "scandir", "listdir", "statvfs"])):
        for name in names:
            monkeypatch.setattr(module, name, refuse)
    yield
    monkeypatch.undo()


def read(step):
    return {"one": RunReading(pace=Pace(step=step, own_samples_per_s={"rosa-0": 5.0, "lily-1": 7.0}))}


def test_no_decision_reads_a_disk_or_changes_the_state_that_it_was_given(state, no_disk):
    before = HostState(
        host="rosa", began_at=0.0, machines=dict(state.machines), runs=dict(state.runs), ended_at=dict(state.ended_at)
    )
    stopped = Report(workers=[WorkerReport(run="one", worker=0, state="stopped")])
    decisions.hear(state, "lily", 101.0)
    decisions.take(state, "rosa", stopped, "10.0.0.9", 101.0)
    decisions.ask_to_leave(state, "lily", "rosa", 101.0)
    decisions.stop_run(state, "one", 101.0)
    decisions.pause_runs(state, 101.0)
    decisions.pass_time(state, 101.0 + AWAY_AFTER_S, read(0), {"one": {"lily": "it cannot reach rosa"}})
    assert state == before


def test_a_first_step_is_not_waited_for_with_a_machine_that_is_away_and_a_reading_is_what_tells(state):
    later = 105.0 + AWAY_AFTER_S
    state = decisions.hear(state, "rosa", later)
    for readings, expected in (({}, 2), (read(3), 2), (read(0), 1)):
        assert decisions.pass_time(state, later, readings, {}).runs["one"].expected == expected


def test_what_machines_did_of_a_run_is_kept_with_them_when_the_run_has_ended(state):
    state = decisions.put_run(state, record("rosa", "lily", state="finished"), 101.0)
    state = decisions.pass_time(state, 102.0, read(9), {})
    assert [state.machines[name].samples_per_s for name in NAMES] == [5.0, 7.0, None]


class Lighthouses:
    def __init__(self):
        self.stopped = []

    def stop(self, port):
        self.stopped.append(port)


def test_a_run_that_is_resumed_at_once_keeps_its_new_lighthouse_and_loses_the_old_one(tmp_path):
    """The old start's files may not all be here yet: a minute later its lighthouse would have been stopped."""
    now, lighthouses = 0.0, Lighthouses()
    roster = MachineRoster(tmp_path / "roster.json", clock=lambda: now)
    roster.enrol(facts("rosa"))
    coordinator = Coordinator(
        folder=tmp_path,
        facts=facts("rosa"),
        roster=roster,
        runs_dir=tmp_path,
        lighthouses=lighthouses,
        clock=lambda: now,
    )

    async def resume_at_once():
        nonlocal now
        coordinator.put_run(record("rosa", state="finished").with_(folder=tmp_path / "one", lighthouse_port=1))
        coordinator.put_run(record("rosa").with_(folder=tmp_path / "one", lighthouse_port=2))
        now += 100.0
        coordinator.heard("rosa")
        coordinator.tick()

    asyncio.run(resume_at_once())
    assert lighthouses.stopped == [1]


def test_the_names_of_cards_reach_roster_and_runs_and_reports_of_earlier_releases_have_none(state):
    cards = {"cuda:0": "NVIDIA GeForce RTX 3070", "cuda:1": "NVIDIA GeForce RTX 3070"}
    told = Report.model_validate_json(Report(devices=list(cards), cards=cards).model_dump_json())
    state = decisions.take(state, "fern", told, "10.0.0.9", 101.0)
    assert state.machines["fern"].cards == cards
    assert [worker.card for worker in state.runs["one"].workers["fern"]] == ["RTX 3070 (1 of 2)", "RTX 3070 (2 of 2)"]
    assert "cards" not in Report(devices=["cpu"]).model_dump_json()
    hostile = Report.model_validate_json('{"devices": ["cuda:0"], "cards": {"cuda:0": "RTX \\u001b[2J"}}')
    assert hostile.cards["cuda:0"] == "RTX \\x1b[2J"
