"""When a worker last committed a step, and how long its sums may still be on their way to the others.

A process that ends takes its connections with it, and bytes that have not arrived are lost, in the kernel or in a gate.
A worker that lacks them would do the step again, without those who have committed it and left.
"""

import time
from collections.abc import Callable

_LEAST_S, _MOST_S = 0.5, 3.0


class LastCommit:
    """The last committed step; before the first, the moment when this was made."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._arrive_by = 0.0
        self.at = clock()
        """By time.monotonic."""

    def note(self, at: float, *, exchanged_s: float | None = None) -> None:
        """A step is committed. `exchanged_s`: how long a step of several workers took; None for a step alone.

        Over the slowest link too, sums arrive within about the time of a step.
        """
        self.at = at
        self._arrive_by = 0.0 if exchanged_s is None else at + min(_LEAST_S + exchanged_s, _MOST_S)

    def let_sums_arrive(self) -> None:
        """Return when the others should have the sums of the last step; at once if it was long ago."""
        if (left_s := self._arrive_by - self._clock()) > 0:
            self._sleep(left_s)
