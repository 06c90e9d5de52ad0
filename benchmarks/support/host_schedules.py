"""Seeded schedules of losses of the host, its successors and links, one after the other in one run of five machines.

Each begins when all machines train and lasts some seconds, in which several losses overlap; then all is mended. Terms
are read from what every machine has on its disk, several times a second.
"""

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.support.household import NAMES, Household, begin_training, end_training, in_household, say
from benchmarks.support.laws import LawFigures, check_laws
from benchmarks.support.long_soak import Watch, settle
from benchmarks.support.mishaps import HostLosses
from potluck.core.errors import MeetingError
from potluck.meeting.succession.ballot import BallotFile

LASTS_S = 30.0
BETWEEN_S = (1.0, 6.0)
_LOOK_S = 0.1


@dataclass(kw_only=True)
class ScheduleFigures(LawFigures):
    """What all schedules came to."""

    schedules: int
    losses: dict[str, int] = field(default_factory=dict)
    terms: int = 0
    terms_with_two_hosts: list[int] = field(default_factory=list)
    stalls_s: list[float] = field(default_factory=list)
    """The longest time without a committed step, by schedule."""

    def broken(self) -> list[str]:
        """What must not have happened, if it has."""
        two = [f"two hosts in term {term}" for term in self.terms_with_two_hosts]
        return [*super().broken(), *two]


class _Terms(threading.Thread):
    """Who every machine takes for the host of which term."""

    def __init__(self, household: Household) -> None:
        super().__init__(name="terms", daemon=True)
        self._places = [household.gathering.place(name) / "home" / "succession" for name in NAMES]
        self._is_over = threading.Event()
        self.hosts: dict[int, set[str]] = {}

    def run(self) -> None:
        """Look until `end`."""
        while not self._is_over.wait(_LOOK_S):
            for place in self._places:
                try:
                    ballot = BallotFile(place).ballot
                except MeetingError:
                    continue
                if ballot.host is not None:
                    self.hosts.setdefault(ballot.term, set()).add(ballot.host)

    def end(self) -> None:
        """Look no more."""
        self._is_over.set()
        self.join()


def lose_hosts(seeds: Sequence[int]) -> ScheduleFigures:
    """One schedule after the other in one run, then the laws."""
    return in_household(lambda household: _lose(household, seeds))


def _lose(household: Household, seeds: Sequence[int]) -> ScheduleFigures:
    figures = ScheduleFigures(schedules=len(seeds))
    begin_training(household)
    terms = _Terms(household)
    terms.start()
    losses: dict[str, int] = {}
    for seed in seeds:
        watch = Watch(household)
        watch.start()
        count = _one(household, watch, random.Random(seed))
        figures.stalls_s.append(watch.end())
        for what, number in count.items():
            losses[what] = losses.get(what, 0) + number
        say(f"schedule {seed}: {sum(count.values())} losses, at most {figures.stalls_s[-1]} s without a step")
    terms.end()
    figures.losses, figures.terms = losses, len(terms.hosts)
    figures.terms_with_two_hosts = [term for term, hosts in terms.hosts.items() if len(hosts) > 1]
    end_training(household)
    check_laws(household, figures)
    return figures


def _one(household: Household, watch: Watch, chance: random.Random) -> dict[str, int]:
    losses = HostLosses(household, chance)
    began, next_at = time.monotonic(), 0.0
    while time.monotonic() - began < LASTS_S:
        if time.monotonic() >= next_at:
            losses.strike()
            next_at = time.monotonic() + chance.uniform(*BETWEEN_S)
        losses.mend()
        watch.look()
        time.sleep(0.1)
    settle(losses, watch)
    return dict(losses.count)
