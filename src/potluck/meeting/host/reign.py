"""A host's term: which machines confirm it, which may follow it, and how far these have copied its state."""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from potluck.core.errors import MeetingError, did_you_mean
from potluck.core.words import listed
from potluck.gates.lease import may_decide
from potluck.gates.messages import Touch
from potluck.meeting.access.gating import as_electorate, as_electorates
from potluck.meeting.host.copies import Copies
from potluck.meeting.host.successors import Successors
from potluck.meeting.succession.finding import Elsewhere
from potluck.meeting.wire import Succession, Voters

MOST_VOTERS = 21
"""In larger clusters the machines that joined first decide: every voter is pinged several times a second."""
_DROP_S = 3.0  # a machine that confirms nothing for so long has no vote until it does again


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessionRule:
    """What the user wants: named successors, which also break ties; or none at all."""

    named: tuple[str, ...] = ()
    is_off: bool = False
    """No other machine may become the host: this one goes on alone, and without it nothing goes on."""


class NotConfirmedError(MeetingError):
    """Not enough machines confirm this host: nothing may change here now, since another one may be the host."""


class Reign:
    """The succession as this host has it now. Used by the event loop only."""

    def __init__(
        self,
        machine: str,
        rule: SuccessionRule = SuccessionRule(is_off=True),
        known: Succession | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.machine = machine
        self._rule = rule
        self._clock = clock
        known = known or Succession()
        self.term = known.term or (0 if rule.is_off else 1)
        self._number = self.start = known.number + 1
        self._electorates = [] if rule.is_off else list(known.electorates) or [self._of([machine])]
        self._successors = Successors(machine, rule.named, known.successors)
        self._is_retired = False
        self._confirmed_at: dict[str, float] = dict.fromkeys(known.voters(), clock())
        self._acknowledged: dict[str, int] = {}
        self.copies = Copies(clock)
        self.touch: Touch | None = None
        """What this machine's gate last said of the lease."""
        self.newer: Elsewhere | None = None
        """The host of a newer term."""

    @property
    def succession(self) -> Succession:
        return Succession(
            term=self.term,
            number=self._number if self._electorates else 0,
            electorates=self._electorates,
            successors=self._successors.names,
        )

    @property
    def replaced_by(self) -> str | None:
        """The machine that is the host now in place of this one."""
        return None if self.newer is None else self.newer.host

    @property
    def has_lease(self) -> bool:
        """Whether enough machines confirm this host."""
        return not self._electorates or (self.touch is not None and self.touch.has_lease)

    def acknowledge(self, machine: str, number: int) -> None:
        """A machine has noted the electorates with this number on its disk."""
        self._acknowledged[machine] = number

    def missing(self) -> list[str]:
        """Voters that do not confirm this host now."""
        if self.touch is None:
            return []
        return [name for name in self.succession.voters() if name not in self.touch.confirmed_by]

    def settle(self, touch: Touch, machines: Iterable[str]) -> bool:
        """Bring voters and successors up to date; True if they have changed.

        `machines`: those that may have a vote, in the order in which they joined. The electorate changes only while
        the one before confirms this host, and counts alone only when too few of the one before are ignorant of it.
        """
        self.touch = touch
        if self._rule.is_off or self._is_retired:
            return False
        now = self._clock()
        self._confirmed_at |= dict.fromkeys(touch.confirmed_by, now)
        present = [
            name
            for name in machines
            if name == self.machine or now - self._confirmed_at.get(name, float("-inf")) < _DROP_S
        ]
        present.sort(key=lambda name: name != self.machine)
        before = self.succession
        self._retire_old()
        wanted = self._of(present[:MOST_VOTERS])
        if touch.has_lease and len(self._electorates) == 1 and wanted != self._electorates[0]:
            self._number += 1
            self._electorates = [self._electorates[0], wanted]
            self._retire_old()
        if touch.has_lease:  # without it nobody seems to be here, and those who could go on must stay successors
            self._successors.choose(present, self._confirmed_at, now)
        return self.succession != before

    def end_vote(self, machine: str) -> None:
        """This machine has no vote any more: it votes for nobody, by its own word or that of a person who knows."""
        self._confirmed_at.pop(machine, None)
        self._acknowledged.pop(machine, None)
        if machine in self.succession.voters():
            self._number += 1
            remaining = [[name for name in one.machines if name != machine] for one in self._electorates]
            self._electorates = [self._of(names) for names in remaining]
            self._successors.drop(machine)

    def as_data(self) -> dict[str, Any]:
        """The succession for `potluck status`."""
        now = self.succession
        return {
            "term": now.term,
            "voters": now.voters(),
            "successors": now.successors,
            "copied": {name: self.copies.rank(name) for name in now.successors},
            "has_lease": self.has_lease,
            "may_go_on_alone": [one.tie_breaker for one in now.electorates[-1:] if len(one.machines) == 2],
        }

    def lines(self, machines: Collection[str] = ()) -> list[str]:
        """For people: a named successor that is none of these machines, and what keeps this host from acting."""
        unknown = [name for name in self._rule.named if name not in machines] if len(machines) > 1 else []
        lines = [
            f"{name} is to take {self.machine}'s place when it is gone, and no machine of that name has joined\n"
            f"  fix: if the name is wrong, start the host again with --successor NAME: "
            f"{did_you_mean(name, [one for one in machines if one != self.machine])}"
            for name in unknown
        ]
        if self.has_lease or self.touch is None:
            return lines
        why = self.unconfirmed()
        return [*lines, f"{why.args[0]}\n  fix: {why.fix}"]

    def unconfirmed(self) -> NotConfirmedError:
        """Why this host may not act now."""
        if self.replaced_by is not None:
            return NotConfirmedError(f"{self.replaced_by} is the host now", fix="try again in some seconds")
        missing = self.missing()
        if not missing:
            return NotConfirmedError(
                f"{self.machine} has just begun to be the host, and waits until the others confirm that",
                fix="try again in some seconds",
            )
        them, first = listed(missing), missing[0]
        return NotConfirmedError(
            f"{self.machine} waits: it is out of touch with {them}, and these may have gone on without it",
            fix=f"bring {'it' if len(missing) == 1 else 'them'} back; or, if {them} "
            f"{'is' if len(missing) == 1 else 'are'} off, on {self.machine}: potluck leave {first}",
        )

    def retire(self) -> None:
        """This host ends in order: no machine takes its place, and its runs go on when it starts again."""
        self._is_retired = True
        self._successors.clear()

    def prefer(self, machine: str) -> None:
        """Make a machine the first successor."""
        self._successors.prefer(machine)

    def _of(self, machines: Collection[str]) -> Voters:
        tie_breaker = next((name for name in self._rule.named if name in machines), self.machine)
        return Voters(machines=list(machines), tie_breaker=tie_breaker)

    def _retire_old(self) -> None:
        """Drop the electorate before, once those of it that do not know the new one could not decide without it.

        This machine knows of it when its gate does, which judges the lease: an agent may tell the gate late.
        """
        told = None if self.touch is None else self.touch.electorates
        if len(self._electorates) < 2 or told not in (None, as_electorates(self.succession)):
            return
        old = self._electorates[0]
        ignorant = {name for name in old.machines if self._acknowledged.get(name, 0) < self._number} - {self.machine}
        if not may_decide(as_electorate(old), ignorant):
            self._electorates = self._electorates[1:]

    def are_copied(self, rank: int, among: Collection[str]) -> bool:
        """Whether this host may act, and all successors that are here have a copy at least as new as this."""
        return self.has_lease and not self.without_copy(rank, among)

    def without_copy(self, rank: int, among: Collection[str]) -> list[str]:
        """Successors that are here, and have no copy that is as new as this."""
        here = set(among) & (set() if self.touch is None else set(self.touch.confirmed_by))
        return [name for name in self._successors.names if name in here and self.copies.rank(name) < rank]
