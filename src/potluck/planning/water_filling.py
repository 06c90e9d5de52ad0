"""Water filling: splits whole samples over workers so that the last worker finishes as early as possible. Exact.

A worker's cost gives the most samples that it finishes within a time T. T is bisected until these numbers just below
and just above T differ by at most one sample a worker; the samples still missing then go to the workers that finish
them earliest. Only additions, products and quotients of float64, so that every machine computes the same bits.
"""

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from potluck.planning.costs import ComputeProfile

Numbers: TypeAlias = NDArray[Any]

_NO_CAP = 1 << 40
_MOST_HALVINGS = 200


class CostTable:
    """The costs of many workers as arrays: the last axis is workers; the first axis, of knots of a curve, is knots."""

    def __init__(self, profiles: Sequence[ComputeProfile]) -> None:
        shape = (1 + max(len(profile.curve) for profile in profiles), len(profiles))
        self._at = np.full(shape, 2 * _NO_CAP, dtype=np.int64)  # beyond any share
        self._seconds = np.full(shape, np.inf)
        self._slope = np.ones(shape)
        self._at[0] = 0
        self._seconds[0] = [profile.fixed_s for profile in profiles]
        self._slope[0] = [profile.per_sample_s for profile in profiles]
        curved = [(column, profile) for column, profile in enumerate(profiles) if profile.curve]
        for column, profile in curved:
            knots = [(0, profile.fixed_s), *profile.curve]
            for row, ((samples, seconds), (later, later_s)) in enumerate(pairwise(knots)):
                self._at[row + 1, column], self._seconds[row + 1, column] = later, later_s
                self._slope[row, column] = (later_s - seconds) / (later - samples)
                self._slope[row + 1, column] = profile.per_sample_s
        self._columns = np.arange(len(profiles))
        self._cap = np.array([_NO_CAP if p.memory_cap is None else p.memory_cap for p in profiles], dtype=np.int64)
        self._whole_s = self._micro_batch(self._cap)

    def seconds(self, samples: Numbers) -> Numbers:
        """Every worker's own work for its number of samples."""
        whole, rest = np.divmod(samples, self._cap)
        return whole * self._whole_s + self._micro_batch(rest)

    def most(self, limit_s: Numbers, batch: int) -> Numbers:
        """For each worker the most samples, up to the batch, that it finishes within the limit."""
        whole = np.floor(np.minimum(limit_s / self._whole_s, batch))
        left_s = limit_s - whole * self._whole_s
        at = self._knot(self._seconds, left_s)
        rest = self._at[at] + np.floor((left_s - self._seconds[at]) / self._slope[at])
        rest = np.clip(rest, 0, np.minimum(batch, self._cap))
        samples = np.minimum(whole * self._cap + rest, batch).astype(np.int64)
        # The division may have been rounded across a whole number, so the cost itself decides.
        samples += self.seconds(samples + 1) <= limit_s
        samples -= self.seconds(samples) > limit_s
        return np.asarray(np.clip(samples, 0, batch))

    def only(self, rows: Numbers) -> "CostTable":
        """The table of these workers."""
        part = copy(self)
        part._at, part._seconds, part._slope = self._at[:, rows], self._seconds[:, rows], self._slope[:, rows]
        part._cap, part._whole_s = self._cap[rows], self._whole_s[rows]
        part._columns = np.arange(len(part._cap))
        return part

    def _micro_batch(self, samples: Numbers) -> Numbers:
        at = self._knot(self._at, samples)
        return np.asarray((samples > 0) * (self._seconds[at] + self._slope[at] * (samples - self._at[at])))

    def _knot(self, knots: Numbers, values: Numbers) -> Any:
        """The index of the last knot at or before each value, of the first knot if there is none."""
        if len(knots) == 1:
            return 0  # a line has one knot
        passed = sum((row <= values).astype(np.int64) for row in knots[1:])
        return passed, self._columns


class Filled(NamedTuple):
    """The best shares for each of several sets of workers, and when the last worker of each set finishes."""

    shares: Numbers  # [sets, workers]
    work_s: Numbers  # [sets]


def fill(table: CostTable, batch: int, active: Numbers, least: Numbers) -> Filled:
    """Shares that add up to the batch and finish earliest, for every row of active [sets, workers].

    `least` is each worker's smallest share. The sum of `least` over the active workers must not exceed the batch.
    """
    least = np.where(active, least, 0)
    even = -(-batch // active.sum(1, keepdims=True))
    below_s = np.zeros((len(active), 1))
    above_s = np.where(active, table.seconds(np.maximum(even, least)), 0.0).max(1, keepdims=True)
    below, above = least, np.where(active, np.maximum(table.most(above_s, batch), least), 0)
    for _ in range(_MOST_HALVINGS):
        if (above - below).max(initial=0) <= 1:
            break
        middle_s = (below_s + above_s) / 2
        middle = np.where(active, np.maximum(table.most(middle_s, batch), least), 0)
        enough = middle.sum(1, keepdims=True) >= batch
        above_s, below_s = np.where(enough, middle_s, above_s), np.where(enough, below_s, middle_s)
        above, below = np.where(enough, middle, above), np.where(enough, below, middle)
    missing = batch - below.sum(1, keepdims=True)
    next_s = np.where(above > below, table.seconds(below + 1), np.inf)
    # Ties go to the worker that comes first: a stable sort, so that everyone computes the same plan.
    place = np.argsort(np.argsort(next_s, axis=1, kind="stable"), axis=1, kind="stable")
    shares = below + (place < missing)
    return Filled(shares, np.where(active, table.seconds(shares), 0.0).max(1))
