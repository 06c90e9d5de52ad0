"""The bench: a machine that would slow the run stays beside it, follows its state, and measures itself now and then."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from potluck.core.errors import GroupError
from potluck.engine.healing import FINAL, NEWEST

_PRACTISE_EVERY_S = 10.0
_LOOK_EVERY_S = 0.2
_NUM_TRIES = 5


class Bench:
    """Where a worker waits for its turn to practise: one step of its own, whose result nobody uses."""

    def __init__(self, peers: Sequence[str], fetch: Callable[[str, int], dict[str, Any]], num_samples: int) -> None:
        self.num_samples = num_samples
        """How many a practice step has: as many as the worker took last."""
        self._peers = peers
        self._fetch = fetch
        self._began_at = 0.0
        self._final: dict[str, Any] | None = None
        self._following = threading.Thread(target=self._follow, name="potluck-bench", daemon=True)
        self._following.start()

    @property
    def is_deserted(self) -> bool:
        """The others are gone before the end: there is nobody left to be slowed down."""
        return not self._following.is_alive() and self._final is None

    @property
    def is_over(self) -> bool:
        """Training has ended, and its last state is here."""
        return self._final is not None

    def wait(self, is_stopping: Callable[[], bool]) -> None:
        """Until it is time to practise again, or to stop, or all is over."""
        until = time.monotonic() + _PRACTISE_EVERY_S
        while time.monotonic() < until and self._following.is_alive() and not is_stopping():
            time.sleep(_LOOK_EVERY_S)

    def newest_state(self) -> dict[str, Any] | None:
        """What the others have come to, if one of them answers."""
        for _ in range(_NUM_TRIES):
            if self._final is not None:
                return self._final
            for peer in self._peers:
                with suppress(OSError, GroupError):
                    return self._fetch(peer, NEWEST)
            time.sleep(_LOOK_EVERY_S)  # between two steps nobody gives a state away
        return None

    def _follow(self) -> None:
        """Wait with one peer after the other for the end of training."""
        for peer in self._peers:
            with suppress(OSError, GroupError):
                self._final = self._fetch(peer, FINAL)
                return

    def begin(self) -> None:
        """The practice step begins."""
        self._began_at = time.monotonic()

    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began_at
