"""The bench: a machine that would slow the run stays beside it, follows its state, and measures itself now and then."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from potluck.core.errors import GroupError

_PRACTISE_EVERY_S = 10.0
_LOOK_EVERY_S = 0.2
_NUM_TRIES = 5
_MOST_SILENCE = 3  # rounds without an answer, after which the others count as gone


class Bench:
    """Where a worker waits for its turn to practise: one step of its own, whose result nobody uses."""

    def __init__(self, peers: Sequence[str], fetch: Callable[[str], dict[str, Any]], num_samples: int) -> None:
        self.num_samples = num_samples
        """How many a practice step has: as many as the worker took last."""
        self._peers = peers
        self._fetch = fetch
        self._silent_rounds = 0
        self._began_at = 0.0

    @property
    def is_deserted(self) -> bool:
        """The others are gone: there is nobody left to be slowed down."""
        return self._silent_rounds >= _MOST_SILENCE

    def wait(self, is_stopping: Callable[[], bool]) -> None:
        """Until it is time to practise again, or to stop."""
        until = time.monotonic() + _PRACTISE_EVERY_S
        while time.monotonic() < until and not is_stopping():
            time.sleep(_LOOK_EVERY_S)

    def newest_state(self) -> dict[str, Any] | None:
        """What the others have come to, if one of them answers."""
        for _ in range(_NUM_TRIES):
            for peer in self._peers:
                try:
                    state = self._fetch(peer)
                except (OSError, GroupError):
                    continue
                self._silent_rounds = 0
                return state
            time.sleep(_LOOK_EVERY_S)  # between two steps nobody gives a state away
        self._silent_rounds += 1
        return None

    def begin(self) -> None:
        """The practice step begins."""
        self._began_at = time.monotonic()

    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began_at
