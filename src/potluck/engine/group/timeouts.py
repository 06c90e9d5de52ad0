"""How long to wait for peers in a step: a multiple of the recent steps' duration, not one constant."""

from collections import deque
from datetime import timedelta

_SHORTEST_S = 1.5
_LONGEST_S = 120.0
_UNKNOWN_S = 20.0
_NUM_STEPS = 20
_USUAL_BYTES_PER_S = 1e6  # 8 Mbit/s, for a first exchange: a slower link spoils that step, and the timeout doubles
_SLOWEST_BYTES_PER_S = 2.5e5  # 2 Mbit/s: a link of 10 Mbit/s that several transfers share


class StepTimeout:
    """The time after which a silent peer counts as lost."""

    def __init__(self, *, num_known: int = 3) -> None:
        self._num_known = num_known
        self._step_s: deque[float] = deque(maxlen=_NUM_STEPS)
        self._stretch = 1.0
        self._extra_s = 0.0
        self._exchange_bytes = 0

    def exchanges(self, num_bytes: int) -> None:
        """Allow for exchanges of so many bytes: on a slow link they may take longer than any constant."""
        self._exchange_bytes = num_bytes

    def timeout(self) -> timedelta:
        """One second plus three times a slow recent step (80th percentile); generous until a few steps are known.

        The percentile ignores a few much longer steps, in which a machine was lost or the lighthouse was restarted.
        """
        known = len(self._step_s) >= self._num_known
        first_s = _UNKNOWN_S + 2 * self._exchange_bytes / _USUAL_BYTES_PER_S
        usual = 1.0 + 3 * sorted(self._step_s)[len(self._step_s) * 4 // 5] if known else first_s
        longest_s = max(_LONGEST_S, 2 * usual, 2 * self._exchange_bytes / _SLOWEST_BYTES_PER_S)
        return timedelta(seconds=min(longest_s, max(_SHORTEST_S, usual) * self._stretch) + self._extra_s)

    def committed(self, step_s: float) -> None:
        self._step_s.append(step_s)
        self._stretch = 1.0
        self._extra_s = 0.0

    def spoiled(self, *, someone_left: bool) -> None:
        """If no worker has left, one is alive but slow: double the timeout, or the step would be spoiled for ever."""
        self._stretch = 1.0 if someone_left else min(self._stretch * 2, 64.0)

    def healing(self, num_bytes: int) -> None:
        """Extend the timeout of this step: a peer first fetches the whole state, however slow its link.

        The wait is rarely that long: gates end the connections to a machine that has not answered for a minute, and the
        exchange fails then.
        """
        self._extra_s = 5.0 + num_bytes / _SLOWEST_BYTES_PER_S

    def wait_for_slower(self, seconds: float) -> None:
        """Extend the timeout of this exchange: peers may be later than this worker by so much."""
        self._extra_s = max(self._extra_s, seconds)

    def grown(self) -> None:
        """Forget the steps so far: a new peer may be slower than any before."""
        self._step_s.clear()
