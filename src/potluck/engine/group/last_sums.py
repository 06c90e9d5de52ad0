"""How long a worker that ends keeps its connections open: its last sums may still be on their way to the others.

A process that ends takes its connections with it, and bytes that have not arrived are lost, in the kernel or in a gate.
A worker that lacks them would do the step again, without those who have committed it and left.
"""

import time
from collections.abc import Callable

_LEAST_S, _MOST_S = 0.5, 3.0


class LastSums:
    """The last committed step of several workers, whose sums the slowest link may still be carrying."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._arrive_by = 0.0

    def committed(self, step_s: float) -> None:
        """Note a committed step that took so long: its sums arrive everywhere within about the time of a step."""
        self._arrive_by = self._clock() + min(_LEAST_S + step_s, _MOST_S)

    def wait_until_arrived(self) -> None:
        """Return when the others should have the sums; at once if there was no step with others lately."""
        if (left_s := self._arrive_by - self._clock()) > 0:
            self._sleep(left_s)
