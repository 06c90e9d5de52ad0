"""Which copy of the host's state each successor has on its disk."""

import time
from collections.abc import Callable

_ASKS_S = 3.0  # a successor asks for a newer copy several times a second, as long as its disk can be written


class Copies:
    """The newest copy on each successor's disk, by its rank, and when the successor last said so."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ranks: dict[str, int] = {}
        self._told_at: dict[str, float] = {}

    def note(self, machine: str, rank: int) -> bool:
        """A successor says which copy it has; whether that is news: another one, or a word after some silence."""
        is_news = self._ranks.get(machine) != rank or not self.is_kept(machine, rank)
        self._ranks[machine], self._told_at[machine] = rank, self._clock()
        return is_news

    def rank(self, machine: str) -> int:
        """0 if the machine has none."""
        return self._ranks.get(machine, 0)

    def is_kept(self, machine: str, rank: int) -> bool:
        """Whether the machine has a copy at least as new, and could write a newer one a moment ago."""
        lately = self._clock() - self._told_at.get(machine, float("-inf")) < _ASKS_S
        return lately and self.rank(machine) >= rank
