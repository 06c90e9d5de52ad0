"""A host that ends pauses its runs, and one that starts again goes on with them: nothing is judged in between."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from potluck.meeting.host.closing import Closing
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.lighthouses import Lighthouses
from potluck.meeting.host.pausing import come_back, go_on, has_paused, pause
from potluck.meeting.host.roster import AWAY_AFTER_S, MachineRoster
from potluck.meeting.host.runs import assignment_for, judge
from potluck.meeting.wire import Report, WorkerReport
from tests.unit.meeting.test_doorway import facts
from tests.unit.meeting.test_plain_runs import PLAIN
from tests.unit.meeting.test_runs_on_machines import NOBODY, record, told


def test_a_paused_run_is_not_judged_and_goes_on_as_another_start():
    run = pause(record("rosa", "lily"))
    assert assignment_for(run, "lily", host="rosa").phase == "stop"
    assert not has_paused(run, NOBODY)
    run = told(told(run, "rosa", "stopped", is_home=True), "lily", "stopped", is_home=True)
    assert judge(run, NOBODY).state == "paused"
    assert has_paused(run, NOBODY)
    assert assignment_for(run, "lily", host="rosa") is None
    again = go_on(run)
    assert (again.state, again.start_number) == ("running", 2)
    assert [worker.state for _, worker in again.all_workers()] == ["preparing", "preparing"]
    assert judge(again, NOBODY) == again
    assert assignment_for(again, "lily", host="rosa").phase == "go"


def test_what_a_machine_says_of_the_start_before_the_pause_is_no_news():
    again = go_on(pause(record("lily")))
    assert told(again, "lily", "stopped", start_number=1) == again
    assert told(again, "lily", "running", start_number=2) != again


def test_a_machine_that_waits_for_nobody_is_not_waited_for():
    run = told(pause(record("rosa", "lily")), "rosa", "stopped", is_home=True)
    assert has_paused(run, frozenset({"lily"}))


@pytest.mark.parametrize("state", ["stopping", "finished", "stopped", "failed"])
def test_only_what_runs_is_paused(state):
    assert pause(record("rosa", state=state)).state == state


class Restarts:
    """The meeting coordinator of a host, over and over again on the same folder, with a clock that the test moves."""

    def __init__(self, folder):
        self.folder = folder
        self.now = 0.0
        roster = self._roster()
        for name in ("rosa", "lily"):
            roster.enrol(facts(name))
            roster.change(name, devices=["cpu"])
        roster.save()

    def _roster(self):
        return MachineRoster(self.folder / "roster.json", clock=lambda: self.now)

    def start(self):
        roster = self._roster()
        roster.enrol(facts("rosa"))  # as a host does with its own machine
        return Coordinator(
            folder=self.folder,
            facts=facts("rosa"),
            roster=roster,
            runs_dir=self.folder / "experiments",
            lighthouses=Lighthouses("127.0.0.1", None),
            clock=lambda: self.now,
        )


def stopped(run, machine, **more):
    return Report(workers=[WorkerReport(run="one", worker=run.workers[machine][0].number, state="stopped", **more)])


def test_a_host_that_starts_again_waits_for_its_machines_before_it_judges(tmp_path):
    """Its own worker had stopped with it, and the others have had no time to be heard."""
    restarts = Restarts(tmp_path)
    coordinator = restarts.start()
    coordinator.put_run(record("rosa", "lily").with_(folder=tmp_path / "experiments" / "one"))
    assert coordinator.pause_runs() == (["one"], [])
    coordinator.take("rosa", stopped(coordinator.state.runs["one"], "rosa", is_home=True))
    restarts.now += 1000
    coordinator = restarts.start()
    coordinator.tick()
    assert coordinator.state.runs["one"].state == "running"
    restarts.now += AWAY_AFTER_S - 1
    coordinator.tick()
    assert coordinator.state.runs["one"].state == "running"


def test_a_killed_hosts_run_is_not_judged_by_what_was_true_before(tmp_path):
    restarts = Restarts(tmp_path)
    coordinator = restarts.start()
    run = record("rosa", "lily").with_(folder=tmp_path / "experiments" / "one")
    coordinator.put_run(told(run, "rosa", "stopped"))  # rosa had left the run, and lily went on
    restarts.now += 1000
    coordinator = restarts.start()
    coordinator.tick()
    assert coordinator.state.runs["one"].state == "running"


def test_a_machine_that_comes_back_has_not_ended():
    run = told(record("lily", "fern"), "lily", "stopped")
    assert come_back(run, "lily").workers["lily"][0].state == "preparing"
    assert come_back(run, "fern") == run


def test_requests_that_wait_are_answered_when_the_host_ends():
    async def wait(_):
        await asyncio.sleep(60)

    async def answer(_):
        return PlainTextResponse("fine")

    app = Closing(Starlette(routes=[Route("/wait", wait), Route("/answer", answer)]), "rosa")
    with TestClient(app) as client:
        assert client.get("/answer").text == "fine"
        app.close()
        ended = client.get("/wait")
    assert ended.status_code == 503
    assert ended.json()["error"] == "rosa is ending its potluck host"


def test_plain_runs_are_named_and_waited_for_when_the_host_ends(tmp_path):
    coordinator = Restarts(tmp_path).start()
    run = record("rosa", "lily").with_(folder=tmp_path / "experiments" / "one", task=PLAIN)
    coordinator.put_run(run)
    assert coordinator.pause_runs() == ([], ["one"])
    assert not coordinator.are_runs_paused()
    for machine in run.workers:
        coordinator.take(machine, stopped(run, machine, is_home=True))
    assert coordinator.are_runs_paused()
    assert coordinator.state.runs["one"].state == "stopped"


def test_a_plain_run_goes_on_after_the_hosts_computer_has_slept(tmp_path):
    restarts = Restarts(tmp_path)
    coordinator = restarts.start()
    run = record("rosa", "lily").with_(folder=tmp_path / "experiments" / "one", task=PLAIN)
    coordinator.put_run(run)

    def live(seconds, *machines):
        for _ in range(seconds):
            restarts.now += 1
            for machine in machines:
                coordinator.heard(machine)
            coordinator.tick()

    live(20, "rosa", "lily")
    restarts.now += 1000
    coordinator.take("rosa", Report(workers=[]))  # heard before the first tick, and lily not yet
    live(8, "rosa")
    live(20, "rosa", "lily")
    assert coordinator.state.runs["one"].state == "running"
    assert not coordinator.state.runs["one"].message
    live(20, "rosa")
    assert coordinator.state.runs["one"].message == "lily was lost: the host hears nothing from it any more"
