"""The speed of one machine alone, after all others were benched, against the speed of all together."""

from dataclasses import dataclass

from potluck.planning.explain import alone_text


@dataclass(slots=True, kw_only=True)
class Lone:
    """Steps of the only machine that trains."""

    machine: str
    benched: tuple[str, ...]
    together_samples_per_s: float
    """Measured in the last steps before the bench decision, or else predicted."""
    _samples: int = 0
    _seconds: float = 0.0
    _num_steps: int = 0

    def add(self, samples: int, seconds: float) -> None:
        """Add a committed step; the first one still belongs to the ring."""
        self._num_steps += 1
        if self._num_steps > 1:
            self._samples += samples
            self._seconds += seconds

    def text(self) -> str:
        """One line for the end of the run; empty if the machine has committed no step alone."""
        if not self._seconds:
            return ""
        speed = self._samples / self._seconds
        return alone_text(self.machine, self.benched, speed, self.together_samples_per_s)
