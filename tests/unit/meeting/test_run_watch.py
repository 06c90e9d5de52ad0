"""The host's watch over its runs: nobody waits without being told, and who cannot reach the others is left out."""

import pytest

from potluck.events.log import EventLog
from potluck.events.types import Notice, StepCommitted, Waiting
from potluck.meeting.host.readings import RunReadings
from potluck.meeting.host.reported_links import ReportedLinks
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.run_watch import RunWatch
from potluck.meeting.host.runs import RunRecord, WorkerRecord, assignment_for, judge, lower_expectation
from potluck.meeting.host.troubles import Troubles
from potluck.meeting.wire import LinkReport, Reach, RunTask
from tests.unit.meeting.test_doorway import facts

NAMES = ("rosa", "lily", "fern")


class Scene:
    """A roster, a run on three machines, its event files, and a clock."""

    def __init__(self, folder, **record):
        self.now = 0.0
        self.roster = MachineRoster(folder / "roster.json", clock=lambda: 0.0)
        for number, name in enumerate(NAMES, start=1):
            self.roster.enrol(facts(name, address=f"10.0.0.{number}", firewall_command=f"open {name}"))
            self.roster.change(name, reach=Reach(addresses=[f"10.0.0.{number}"], port=29500))
        workers = {name: [WorkerRecord(number=n, device="cpu", state="running")] for n, name in enumerate(NAMES)}
        self.record = RunRecord(
            name="long", id="1", task=RunTask(settings={}), started_by="a@rosa", started_at=0.0, folder=folder / "long",
            secret="s", lighthouse_port=1, state="running", expected=3, workers=workers, **record
        )  # fmt: skip
        self.readings = RunReadings("rosa", Troubles(pytest.fail))
        self.watch = RunWatch(self.roster, "rosa", clock=lambda: self.now)
        self.logs = {name: EventLog(folder / "long" / "events" / f"{name}-{n}.jsonl") for n, name in enumerate(NAMES)}
        for name in NAMES:
            self.step(name, 7)

    def step(self, name, step):
        self.logs[name].append(StepCommitted(step=step, epoch=0, samples=64, loss=1.0, seconds=0.1))

    def wait(self, name, **more):
        self.logs[name].append(Waiting(step=7, seconds=9.0, what="gradients", **more))

    def link(self, one, other, way):
        for source, target in ((one, other), (other, one)):
            links = self.roster.machines[source].links.by_machine.values()
            self.roster.change(source, links=ReportedLinks.of([*links, LinkReport(machine=target, way=way)]))

    def look_after(self, seconds, absent=frozenset()):
        for _ in range(int(seconds)):
            self.now += 1.0
            self.readings.read([self.record])
            self.watch.look([self.record], absent, self.readings)
        found = self.watch._found["long"]
        self.record = self.record.with_(left_out=dict(found.left_out))
        return found


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def test_a_run_that_steps_or_computes_long_is_left_in_peace(scene):
    for step in range(8, 60):
        scene.step("rosa", step)
        assert scene.look_after(1).trouble == ()
    assert scene.look_after(600).trouble == ()


def test_who_waits_for_whom_is_said_before_20_seconds_are_over_and_not_after_the_next_step(scene):
    scene.look_after(1)
    scene.wait("rosa")
    scene.wait("lily", problem="Timed out waiting 1500ms for recv")
    scene.logs["lily"].append(Notice(text="something else"))
    lines = scene.look_after(16).trouble
    assert lines[0].endswith("(step 7): rosa-0 and lily-1 wait for fern-2")
    assert "Timed out waiting" in lines[1]
    assert "potluck doctor --cluster" in lines[2]
    for name in NAMES:
        scene.step(name, 8)
    assert scene.look_after(1).trouble == ()


def test_a_relayed_pair_is_named_and_trains(scene):
    scene.link("lily", "fern", "relayed")
    assert scene.look_after(3).trouble == ()
    found = scene.look_after(3)
    assert "link lily-fern goes through rosa" in found.trouble[0]
    assert "on lily: open lily; or on fern: open fern" in found.trouble[1]
    assert not found.left_out
    assert scene.watch.link_trouble("rosa") == ()
    assert scene.watch.link_trouble("fern") == scene.watch.link_trouble() == found.trouble


@pytest.mark.parametrize(("way", "is_direct"), [("down", False), ("relayed", True)])
def test_a_pair_that_cannot_talk_does_not_stop_the_others(tmp_path, way, is_direct):
    scene = Scene(tmp_path, is_direct=is_direct)
    scene.link("lily", "fern", way)
    found = scene.look_after(6)
    assert list(found.left_out) == ["fern"]
    assert "fern takes no part in run long: it and lily cannot reach each other" in found.trouble
    assert assignment_for(scene.record, "fern", host="rosa").phase == "rest"
    assert assignment_for(scene.record, "lily", host="rosa").phase == "go"
    # The workers of the machine that is left out end; the run does not, and no first step waits for them.
    resting = {**scene.record.workers, "fern": [WorkerRecord(number=2, device="cpu", state="stopped")]}
    scene.record = scene.record.with_(workers=resting)
    assert judge(scene.record, frozenset()).state == "running"
    assert lower_expectation(scene.record, frozenset(), has_stepped=False).expected == 2
    scene.link("lily", "fern", "direct")
    assert not scene.look_after(1).left_out
    assert assignment_for(scene.record, "fern", host="rosa").phase == "go"


def test_ports_for_gradients_that_nobody_answers_at_leave_a_machine_out_until_it_joins_anew(tmp_path):
    scene = Scene(tmp_path, is_direct=True)
    scene.look_after(1)
    scene.wait("lily", unreachable={"fern": "no answer from 10.0.0.3:4000"})
    found = scene.look_after(1)
    assert list(found.left_out) == ["fern"]
    assert any("leave --direct out" in line for line in found.trouble)
    scene.step("lily", 8)
    scene.step("rosa", 8)
    assert list(scene.look_after(60).left_out) == ["fern"]
    scene.link("lily", "fern", "relayed")
    assert list(scene.look_after(6).left_out) == ["fern"]
    scene.link("lily", "fern", "direct")
    assert not scene.look_after(1).left_out
    scene.wait("lily", unreachable={"fern": "no answer from 10.0.0.3:4000"})
    assert list(scene.look_after(1).left_out) == ["fern"]
    scene.step("lily", 9)
    scene.look_after(1, absent=frozenset({"fern"}))
    assert not scene.look_after(1).left_out


def test_a_worker_that_crashed_is_not_taken_for_a_firewall(tmp_path):
    scene = Scene(tmp_path, is_direct=True)
    scene.wait("lily", unreachable={"fern": "connection refused: 10.0.0.3:4000"})
    assert not scene.look_after(3).left_out
