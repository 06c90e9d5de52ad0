"""A line through timings, in log space: seconds = per_sample * (fixed * pieces + samples), fixed counted in samples.

Logarithms make deviations relative, so small batches count as much as large ones. The fit minimizes absolute
deviations, not squares, so that one pause of the machine does not move the line. For a given `fixed` the best
per_sample is a weighted median, so only `fixed` is searched. Timings of a single size say nothing about `fixed`, which
then stays at its prior.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[Any]

_SMALLEST, _LARGEST = 1e-3, 1e5  # the range in which fixed is searched, in samples
_NUM_TRIED = 32
_NUM_ZOOMS = 3
_UNKNOWN = 1.0  # fixed without a prior, in samples
_PRIOR_WEIGHT = 0.003  # the relative deviation of timings that counts as much as a factor e between fixed and its prior


class Timed(NamedTuple):
    """The time of one worker's own work in one step."""

    samples: int
    seconds: float
    pieces: int = 1
    """The number of micro-batches."""


@dataclass(frozen=True, slots=True)
class Line:
    """The line that fits best, and its error."""

    fixed_samples: float
    per_sample_s: float
    error: float
    """The relative standard error of per_sample_s."""

    def seconds(self, timed: Timed) -> float:
        """The line's time for a step with as many samples and micro-batches."""
        return self.per_sample_s * (self.fixed_samples * timed.pieces + timed.samples)


def fit_line(timings: Sequence[Timed], weights: Sequence[float], prior: float | None = None) -> Line:
    """The best line through weighted timings; `prior` is the expected value of fixed, in samples."""
    samples = np.array([timed.samples for timed in timings], dtype=float)
    pieces = np.array([timed.pieces for timed in timings], dtype=float)
    logs = np.log([timed.seconds for timed in timings])
    weight = np.array(weights) / np.sum(weights)
    expected = np.log(_UNKNOWN if prior is None else min(max(prior, _SMALLEST), _LARGEST))
    low, high = np.log(_SMALLEST), np.log(_LARGEST)
    for _ in range(_NUM_ZOOMS):
        tried = np.linspace(low, high, _NUM_TRIED)
        left = logs - np.log(np.exp(tried)[:, None] * pieces + samples)
        level = _weighted_median(left, weight)
        loss = (weight * np.abs(left - level[:, None])).sum(1) + _PRIOR_WEIGHT * np.abs(tried - expected)
        best = int(loss.argmin())
        width = tried[1] - tried[0]
        low, high = tried[best] - 2 * width, tried[best] + 2 * width
    deviations = np.abs(left[best] - level[best])
    spread = 1.4826 * float(_weighted_median(deviations[None], weight)[0])
    return Line(
        fixed_samples=float(np.exp(tried[best])),
        per_sample_s=float(np.exp(level[best])),
        error=spread * float(np.sqrt((weight**2).sum())),
    )


def _weighted_median(values: Numbers, weight: Numbers) -> Numbers:
    """The weighted median of every row; halfway between two values where the weight splits evenly."""
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    reached = np.cumsum(weight[order], axis=1)
    lower = np.take_along_axis(ordered, (reached < 0.5 - 1e-9).sum(1, keepdims=True), axis=1)
    upper_at = np.minimum((reached < 0.5 + 1e-9).sum(1, keepdims=True), values.shape[1] - 1)
    return np.asarray((lower + np.take_along_axis(ordered, upper_at, axis=1))[:, 0] / 2)
