"""What the host carries between the doctor and joined machines: answers of the machine that was asked, or a reason."""

import asyncio
import contextlib

import pytest

from potluck.core.errors import MeetingError
from potluck.meeting.host.changes import Changes
from potluck.meeting.host.relay import Visits
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.wire import VisitAnswer, VisitQuestion
from tests.unit.meeting.test_doorway import facts

ASK = '{"type": "Introduce"}'


class Scene:
    """Two machines and a clock that the test moves."""

    def __init__(self, folder):
        self.now = 0.0
        self.roster = MachineRoster(folder / "roster.json", clock=lambda: self.now)
        for name in ("lily", "fern"):
            self.roster.enrol(facts(name))
        self.changes = Changes()
        self.visits = Visits(self.roster, self.changes, clock=lambda: self.now)
        self.visit = self.visits.begin(["a-run"]).visit

    def pass_time(self, seconds, *heard):
        self.now += seconds
        for name in heard:
            self.roster.change(name, last_heard=self.now)
        self.visits.tick()
        self.changes.tell()

    def number(self, machine="lily"):
        (told,) = self.visits.told_to(machine)
        return told.number


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def run(scene, meanwhile):
    """Ask lily while something else happens."""

    async def both():
        asking = asyncio.create_task(scene.visits.ask(scene.visit, VisitQuestion(machine="lily", ask=ASK)))
        await asyncio.sleep(0)
        meanwhile()
        return await asyncio.wait_for(asking, 5)

    return asyncio.run(both())


def test_only_the_machine_that_was_asked_answers_and_only_this_question(scene):
    assert scene.number() == 0

    def meanwhile():
        assert scene.number("fern") == 0
        number = scene.number()
        for machine, other in (("fern", number), ("lily", number + 1)):
            scene.visits.take(scene.visit, machine, VisitAnswer(number=other, error="wrong"))
        scene.visits.take(scene.visit, "lily", VisitAnswer(number=number, error="right"))
        assert scene.number() == 0

    assert run(scene, meanwhile).error == "right"
    assert run(scene, meanwhile).number == 2


def test_a_machine_that_goes_away_is_not_waited_for(scene):
    answer = run(scene, lambda: scene.pass_time(20, "fern"))
    assert answer.answer is None
    assert "does not hear it" in answer.error
    assert scene.number() == 0
    begun = scene.visits.begin([])
    assert (set(begun.machines), begun.absent) == ({"fern"}, ["lily"])


def test_a_machine_that_does_not_answer_is_given_up(scene):
    def meanwhile():
        for _ in range(10):
            scene.pass_time(8, "lily")

    assert "no answer in" in run(scene, meanwhile).error


def test_a_visit_ends_when_it_is_ended_or_forgotten(scene):
    other = scene.visits.begin([]).visit
    assert len(scene.visits.told_to("lily")) == 2
    scene.visits.end(other)
    scene.pass_time(31)
    assert scene.visits.told_to("lily") == []
    with pytest.raises(MeetingError, match="is over") as refused:
        scene.visits.take(scene.visit, "lily", VisitAnswer(number=1))
    assert "same command again" in refused.value.fix


@pytest.mark.parametrize("ask", ["", "{}", "[1]", '{"type": "Answer"}', '{"type": "Dial"}', "\ud800"])
def test_only_questions_of_the_doctor_are_carried(ask):
    with contextlib.suppress(UnicodeError), pytest.raises(ValueError, match="ask"):
        VisitQuestion(machine="lily", ask=ask)
