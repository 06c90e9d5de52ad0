"""A host's term: which machines confirm it, which may follow it, and how far these have copied its state."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from potluck.core.words import listed
from potluck.gates.lease import may_decide
from potluck.gates.messages import Touch
from potluck.meeting.access.gating import as_electorate
from potluck.meeting.wire import Succession, Voters

MOST_VOTERS = 21
"""In larger clusters the machines that joined first decide: every voter is pinged several times a second."""
_NUM_SUCCESSORS = 2
_DROP_S = 3.0  # a machine that confirms nothing for so long has no vote until it does again


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessionRule:
    """What the user wants: named successors, which also break ties; or none at all."""

    named: tuple[str, ...] = ()
    is_off: bool = False
    """No other machine may become the host: this one goes on alone, and without it nothing goes on."""


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
        self._number = known.number + 1
        self._electorates = [] if rule.is_off else list(known.electorates) or [self._of([machine])]
        self._successors: list[str] = []
        self._preferred = ""
        self._is_retired = False
        self._confirmed_at: dict[str, float] = dict.fromkeys(known.voters(), clock())
        self._acknowledged: dict[str, int] = {}
        self.copies: dict[str, int] = {}
        """The newest copy of the host's state on each successor's disk, by its number."""
        self.touch: Touch | None = None
        """What this machine's gate last said of the lease."""
        self.replaced_by: str | None = None
        """The host of a newer term."""

    @property
    def succession(self) -> Succession:
        return Succession(
            term=self.term,
            number=self._number if self._electorates else 0,
            electorates=self._electorates,
            successors=self._successors,
        )

    @property
    def has_lease(self) -> bool:
        """Whether enough machines confirm this host."""
        return not self._electorates or (self.touch is not None and self.touch.has_lease)

    def acknowledge(self, machine: str, number: int) -> None:
        """A machine has noted the electorates with this number on its disk."""
        self._acknowledged[machine] = number

    def missing(self) -> list[str]:
        """Voters that do not confirm this host now."""
        here = () if self.touch is None else self.touch.confirmed_by
        return [name for name in self.succession.voters() if name not in here]

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
        self._successors = self._choose(present)
        return self.succession != before

    def vouch_for_loss(self, machine: str) -> None:
        """A person says that this machine is gone: it cannot have voted for another host, and has no vote any more."""
        if machine in self.succession.voters():
            self._number += 1
            remaining = [[name for name in one.machines if name != machine] for one in self._electorates]
            self._electorates = [self._of(names) for names in remaining]
            self._successors = [name for name in self._successors if name != machine]

    def as_data(self) -> dict[str, Any]:
        """The succession for `potluck status`."""
        now = self.succession
        return {
            "term": now.term,
            "voters": now.voters(),
            "successors": now.successors,
            "copied": {name: self.copies.get(name, 0) for name in now.successors},
            "has_lease": self.has_lease,
            "may_go_on_alone": [one.tie_breaker for one in now.electorates[-1:] if len(one.machines) == 2],
        }

    def lines(self) -> list[str]:
        """For people: what keeps this host from acting, or who may take its place."""
        if self.has_lease or self.touch is None:
            return []
        missing = self.missing()
        them, first = listed(missing), missing[0] if missing else ""
        return [
            f"{self.machine} waits: it is out of touch with {them}, and these may have gone on without it\n"
            f"  fix: bring {'it' if len(missing) == 1 else 'them'} back; or, if {them} "
            f"{'is' if len(missing) == 1 else 'are'} off, on {self.machine}: potluck leave {first}"
        ]

    def retire(self) -> None:
        """This host ends in order: no machine takes its place, and its runs go on when it starts again."""
        self._is_retired = True
        self._successors = []

    def prefer(self, machine: str) -> None:
        """Make a machine the first successor."""
        others = [name for name in self._successors if name != machine]
        self._successors = [machine, *others][: max(_NUM_SUCCESSORS, 1 + len(self._rule.named))]
        self._preferred = machine

    def _of(self, machines: Collection[str]) -> Voters:
        tie_breaker = next((name for name in self._rule.named if name in machines), self.machine)
        return Voters(machines=list(machines), tie_breaker=tie_breaker)

    def _retire_old(self) -> None:
        """Drop the electorate before, once those of it that do not know the new one could not decide without it."""
        if len(self._electorates) < 2:
            return
        old = self._electorates[0]
        ignorant = {name for name in old.machines if self._acknowledged.get(name, 0) < self._number} - {self.machine}
        if not may_decide(as_electorate(old), ignorant):
            self._electorates = self._electorates[1:]

    def _choose(self, present: list[str]) -> list[str]:
        if self._rule.named:
            named = [self._preferred, *self._rule.named] if self._preferred in present else list(self._rule.named)
            return [name for name in dict.fromkeys(named) if name != self.machine]
        kept = [name for name in self._successors if name in present]
        others = [name for name in present if name not in (self.machine, *kept)]
        return [*kept, *others][:_NUM_SUCCESSORS]

    def are_copied(self, rank: int, among: Mapping[str, object]) -> bool:
        """Whether all successors that are here have a copy at least as new as this."""
        here = set(among) & (set() if self.touch is None else set(self.touch.confirmed_by))
        return all(self.copies.get(name, 0) >= rank for name in self._successors if name in here)
