"""Recent speed of a run: throughput and seconds a step, over the last seconds of committed steps."""

from collections import deque

from potluck.events.state import LEAST_S


class RecentSpeed:
    """Sums over the committed steps of the last `window_s` seconds; older steps are dropped."""

    def __init__(self, window_s: float = 5.0) -> None:
        self._window_s = window_s
        self._steps: deque[tuple[float, float]] = deque()
        self._samples = 0.0
        self._seconds = 0.0

    def add(self, samples: float, seconds: float) -> None:
        """Add one committed step: the samples of the global batch, and how long the step took."""
        self._steps.append((samples, seconds))
        self._samples += samples
        self._seconds += seconds
        while self._seconds > self._window_s and len(self._steps) > 1:
            old_samples, old_seconds = self._steps.popleft()
            self._samples -= old_samples
            self._seconds -= old_seconds

    @property
    def samples_per_s(self) -> float:
        return self._samples / self._seconds if self._seconds > LEAST_S else 0.0

    @property
    def step_s(self) -> float:
        return self._seconds / len(self._steps) if self._steps else 0.0
