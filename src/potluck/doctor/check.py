"""A check: an id, a one-line title, and a pure function that judges facts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from potluck.doctor.examination import Examination, IntendedRun
from potluck.doctor.finding import FAIL, OK, UNKNOWN, WARN, Finding, Fix
from potluck.machine.facts import Facts

MachineFunction: TypeAlias = "Callable[[Facts, IntendedRun], Verdict]"
ClusterFunction: TypeAlias = "Callable[[Examination], Iterable[tuple[str, Verdict]]]"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A check's result for one machine; with the check's id and the machine's name it becomes a Finding."""

    status: str
    what: str
    why: str = ""
    fixes: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """A check of one machine, by its facts and the planned run."""

    id: str
    title: str
    judge: MachineFunction

    def findings(self, facts: Facts, plan: IntendedRun) -> list[Finding]:
        return [_finding(self.id, facts.machine, self.judge(facts, plan))]


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """A check of several machines and the links between them."""

    id: str
    title: str
    judge: ClusterFunction

    def findings(self, seen: Examination) -> list[Finding]:
        found = [_finding(self.id, machine, verdict) for machine, verdict in self.judge(seen)]
        return found or [Finding(id=self.id, machine="all", status=OK, what=f"{self.title}: nothing of the kind")]


def ok(what: str) -> Verdict:
    """The check found no problem."""
    return Verdict(OK, what)


def warn(what: str, *fixes: Fix, why: str = "") -> Verdict:
    """Training works, but worse than it could."""
    return Verdict(WARN, what, why, fixes)


def fail(what: str, *fixes: Fix, why: str = "") -> Verdict:
    """Training does not work like this."""
    return Verdict(FAIL, what, why, fixes)


def unknown(what: str, *fixes: Fix) -> Verdict:
    """The check has no answer: something that it needs could not be read or was not tried."""
    return Verdict(UNKNOWN, what, "", fixes)


def _finding(check_id: str, machine: str, verdict: Verdict) -> Finding:
    return Finding(
        id=check_id,
        machine=machine,
        status=verdict.status,
        what=verdict.what,
        why=verdict.why,
        fixes=verdict.fixes,
    )
