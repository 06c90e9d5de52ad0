"""Visits, for the doctor and for measuring: the host relays questions to joined machines, and their answers back.

A machine's orders list all open visits, and of each the question that waits for this machine's answer. A visit that is
not in the orders any more is over.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from potluck.core.errors import MeetingError
from potluck.meeting.host.changes import Changes
from potluck.meeting.host.pairs import pair_links
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.wire import Visit, VisitAnswer, VisitBegun, VisitQuestion

_LOOK_S = 1.0
_FORGET_S = 30.0  # the command that asked has ended without ending its visit


@dataclass(slots=True)
class _Open:
    used_at: float
    num_asked: int = 0
    questions: dict[str, Visit] = field(default_factory=dict)
    answers: dict[int, VisitAnswer] = field(default_factory=dict)


class Visits:
    """All open visits; any joined machine may begin one."""

    def __init__(self, roster: MachineRoster, changes: Changes, clock: Callable[[], float] = time.monotonic) -> None:
        self._roster = roster
        self._changes = changes
        self._clock = clock
        self._open: dict[str, _Open] = {}

    def begin(self, runs: list[str]) -> VisitBegun:
        """Open a visit to all present machines that train; `runs` are the runs in progress."""
        name = secrets.token_hex(16)
        self._open[name] = _Open(self._clock())
        trains = [machine for machine, known in self._roster.machines.items() if known.facts.can_train]
        present = set(self._roster.present())
        self._changes.tell()
        known = {machine: self._roster.machines[machine] for machine in trains if machine in present}
        return VisitBegun(
            visit=name,
            machines={machine: self._roster.address_of(machine) for machine in known},
            gates={machine: one.reach for machine, one in known.items() if one.reach is not None},
            links=pair_links(self._roster),
            devices={machine: one.devices or [] for machine, one in known.items()},
            absent=[machine for machine in trains if self._roster.state(machine) == "away"],
            runs=runs,
        )

    def end(self, name: str) -> None:
        self._open.pop(name, None)
        self._changes.tell()

    def as_runs(self) -> dict[str, list[str]]:
        """Visits in the form of runs, for the gates: all present machines may connect to each other."""
        present = sorted(self._roster.present()) if self._open else []
        return dict.fromkeys(self._open, present)

    def told_to(self, machine: str) -> list[Visit]:
        """The open visits, for this machine's orders."""
        return [one.questions.get(machine, Visit(visit=name)) for name, one in self._open.items()]

    async def ask(self, name: str, asked: VisitQuestion) -> VisitAnswer:
        """Relay a question to a machine; returns its answer, or why there is none."""
        visit, machine = self._find(name), asked.machine
        visit.num_asked += 1
        number = visit.num_asked
        visit.questions[machine] = Visit(visit=name, number=number, ask=asked.ask)
        self._changes.tell()
        deadline = self._clock() + asked.patience_s
        try:
            while number not in visit.answers:
                if self._clock() > deadline:
                    return VisitAnswer(number=number, error=f"no answer in {asked.patience_s:.0f} s")
                known = self._roster.machines.get(machine)
                if known is None or self._roster.state(machine) in ("away", "left"):
                    return VisitAnswer(number=number, error="the host does not hear it any more")
                visit.used_at = self._clock()
                await self._changes.wait(_LOOK_S)
            return visit.answers.pop(number)
        finally:
            visit.used_at = self._clock()
            if machine in visit.questions and visit.questions[machine].number == number:
                del visit.questions[machine]

    def take(self, name: str, machine: str, answer: VisitAnswer) -> None:
        """A machine's answer to the question that it was asked; any other is dropped."""
        visit = self._find(name)
        question = visit.questions.get(machine)
        if question is not None and question.number == answer.number:
            del visit.questions[machine]
            visit.answers[answer.number] = answer
            self._changes.tell()

    def tick(self) -> None:
        """End visits that have not been used for _FORGET_S."""
        for name, visit in list(self._open.items()):
            if self._clock() - visit.used_at > _FORGET_S:
                self.end(name)

    def _find(self, name: str) -> _Open:
        if name not in self._open:
            raise MeetingError("this visit is over", fix="give the same command again")
        return self._open[name]
