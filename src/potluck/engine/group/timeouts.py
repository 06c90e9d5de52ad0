"""How long to wait for peers in a step: a multiple of the recent steps' duration, not one constant."""

from collections import deque
from datetime import timedelta

_SHORTEST_S = 1.5
_LONGEST_S = 120.0
_UNKNOWN_S = 20.0
_NUM_STEPS = 20


class StepTimeout:
    """The time after which a silent peer counts as lost."""

    def __init__(self, *, num_known: int = 3) -> None:
        self._num_known = num_known
        self._step_s: deque[float] = deque(maxlen=_NUM_STEPS)
        self._stretch = 1.0
        self._extra_s = 0.0

    def timeout(self) -> timedelta:
        """One second plus three times a slow recent step (80th percentile); generous until a few steps are known.

        The percentile ignores a few much longer steps, in which a machine was lost or the lighthouse was restarted.
        """
        known = len(self._step_s) >= self._num_known
        usual = 1.0 + 3 * sorted(self._step_s)[len(self._step_s) * 4 // 5] if known else _UNKNOWN_S
        return timedelta(seconds=min(_LONGEST_S, max(_SHORTEST_S, usual) * self._stretch + self._extra_s))

    def committed(self, step_s: float) -> None:
        self._step_s.append(step_s)
        self._stretch = 1.0
        self._extra_s = 0.0

    def spoiled(self, *, someone_left: bool) -> None:
        """If no worker has left, one is alive but slow: double the timeout, or the step would be spoiled for ever."""
        self._stretch = 1.0 if someone_left else min(self._stretch * 2, 64.0)

    def healing(self, num_bytes: int, slowest_bytes_per_s: float = 1e6) -> None:
        """Extend the timeout of this step: a peer first fetches the whole state."""
        self._extra_s = 5.0 + num_bytes / slowest_bytes_per_s

    def grown(self) -> None:
        """Forget the steps so far: a new peer may be slower than any before."""
        self._step_s.clear()
