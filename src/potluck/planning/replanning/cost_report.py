"""One worker's cost as numbers that the worker sends to all others with every step's gradients."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from potluck.planning.costs import ComputeProfile

_NUM_BENDS = 5


class CostReport(NamedTuple):
    """One worker's cost in the form in which it is sent: floats only, 0 for unknown numbers."""

    fixed_s: float
    per_sample_s: float
    memory_cap: float
    error: float
    exchange_wait_s: float
    """The usual time from the worker's last gradient to the end of the exchange, and the time of the commit vote
    (`usual_wait_s`)."""
    stretch: float = 1.0
    """How much longer own work takes without the pauses of a ring: a container's CPU quota allows only bursts."""
    bends: tuple[float, ...] = (0.0,) * 2 * _NUM_BENDS
    """The points of the profile's curve around the worker's share: samples and seconds in turn."""
    spread: float = 0.0
    """The relative standard deviation of single steps."""

    @classmethod
    def of(
        cls, profile: ComputeProfile | None, share: int, exchange_wait_s: float, stretch: float = 1.0
    ) -> "CostReport":
        """The report of a worker with this cost, which takes about `share` samples a step."""
        if profile is None:
            return cls(0.0, 0.0, 0.0, 0.0, exchange_wait_s, stretch)
        cost = profile.near(max(1, share), _NUM_BENDS)
        bends = [float(number) for point in cost.curve for number in point]
        return cls(
            cost.fixed_s,
            cost.per_sample_s,
            float(cost.memory_cap or 0),
            cost.error,
            exchange_wait_s,
            stretch,
            (*bends, *[0.0] * (2 * _NUM_BENDS - len(bends))),
            cost.spread,
        )

    @classmethod
    def read(cls, floats: Sequence[float]) -> "CostReport":
        """The inverse of `floats`."""
        fixed_s, per_sample_s, memory_cap, error, exchange_wait_s, stretch, *bends, spread = floats
        return cls(fixed_s, per_sample_s, memory_cap, error, exchange_wait_s, stretch, tuple(bends), spread)

    @property
    def floats(self) -> tuple[float, ...]:
        return (*self[:-2], *self.bends, self.spread)

    @property
    def profile(self) -> ComputeProfile | None:
        """The worker's profile; None if the worker does not know its cost."""
        if self.per_sample_s <= 0:
            return None
        pairs = zip(self.bends[::2], self.bends[1::2], strict=True)
        return ComputeProfile(
            fixed_s=self.fixed_s,
            per_sample_s=self.per_sample_s,
            memory_cap=int(self.memory_cap) or None,
            error=self.error,
            curve=tuple((int(samples), seconds) for samples, seconds in pairs if samples),
            spread=max(0.0, self.spread),
        )


def usual_wait_s(own_s: Sequence[float], waits_s: Sequence[float]) -> float:
    """The usual time of a step less the worker's usual own work, from recent steps; 0 without any.

    That is not the median of the waits: of two equal workers each is the last one in half of the steps, so the median
    of both waits is next to nothing, while steps take longer than either's usual work.
    """
    if not waits_s:
        return 0.0
    whole_s = statistics.median(own + wait for own, wait in zip(own_s, waits_s, strict=True))
    return max(0.0, whole_s - statistics.median(own_s))


UNKNOWN_COST = CostReport.of(None, 0, 0.0)
NUM_COST_NUMBERS = len(UNKNOWN_COST.floats)
