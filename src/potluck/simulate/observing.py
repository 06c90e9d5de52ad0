"""What simulated workers measure of themselves and report: the engine's own fit for few, one for all at once for many.

With up to MOST_FITTED workers each has a `measuring.compute_fit.ComputeFit`, as in a run. Thousands of such fits would
take longer than the planning that is to be simulated. There every worker knows the shape of its profile, and reports it
at the pace of its last steps, which is what that fit does for a profile with a curve.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from potluck.measuring.compute_fit import ComputeFit
from potluck.measuring.line_fit import Timed
from potluck.planning.cluster import Worker
from potluck.planning.costs import ComputeProfile
from potluck.planning.replanning.cost_report import CostReport, usual_wait_s
from potluck.planning.water_filling import CostTable, Numbers

MOST_FITTED = 64
_NUM_RECENT = 8


class Observer(Protocol):
    """The measurements of all workers of a cluster, by their places in it."""

    def saw(self, places: Numbers, shares: Numbers, work_s: Numbers, waits_s: Numbers) -> None:
        """Note one step of these workers."""
        ...

    def profile(self, place: int) -> ComputeProfile | None:
        """What a worker knows of its cost."""
        ...

    def reports(self, places: Numbers, shares: Numbers) -> list[CostReport]:
        """What these workers send with their gradients."""
        ...

    def forget_waits(self) -> None:
        """The group has changed."""
        ...


def make_observer(workers: Sequence[Worker], *, is_cold: bool) -> Observer:
    """The observer for this many workers."""
    known = [None if is_cold else worker.compute for worker in workers]
    if len(workers) <= MOST_FITTED:
        return _Fitted(known)
    return _Paced([worker.compute for worker in workers], is_cold=is_cold)


class _Fitted:
    """A fit for each worker, as the engine has it."""

    def __init__(self, known: Sequence[ComputeProfile | None]) -> None:
        self._fits = [ComputeFit(profile) for profile in known]
        self._own_s: list[deque[float]] = [deque(maxlen=_NUM_RECENT) for _ in known]
        self._waits_s: list[deque[float]] = [deque(maxlen=_NUM_RECENT) for _ in known]
        self._num_seen = [0] * len(known)

    def saw(self, places: Numbers, shares: Numbers, work_s: Numbers, waits_s: Numbers) -> None:
        rows = zip(places.tolist(), shares.tolist(), work_s.tolist(), waits_s.tolist(), strict=True)
        for place, share, own_s, wait_s in rows:
            if share:
                self._num_seen[place] += 1
                if self._num_seen[place] > 1:  # as in a run, whose first step includes torch's own setup
                    self._fits[place].add(Timed(share, own_s))
                self._own_s[place].append(own_s)
                self._waits_s[place].append(wait_s)

    def profile(self, place: int) -> ComputeProfile | None:
        return self._fits[place].profile()

    def reports(self, places: Numbers, shares: Numbers) -> list[CostReport]:
        found = []
        for place, share in zip(places.tolist(), shares.tolist(), strict=True):
            wait_s = usual_wait_s(self._own_s[place], self._waits_s[place])
            found.append(CostReport.of(self.profile(place), share, wait_s))
        return found

    def forget_waits(self) -> None:
        for recent_s in (*self._own_s, *self._waits_s):
            recent_s.clear()


class _Paced:
    """The profiles of many workers, each at the pace of its last steps."""

    def __init__(self, profiles: Sequence[ComputeProfile], *, is_cold: bool) -> None:
        self._profiles = profiles
        self._is_known = np.full(len(profiles), not is_cold)
        self._ratios = np.ones((_NUM_RECENT, len(profiles)))
        self._own_s = np.zeros((_NUM_RECENT, len(profiles)))
        self._waits_s = np.zeros((_NUM_RECENT, len(profiles)))
        self._num_seen = 0
        self._table = CostTable(profiles)

    def saw(self, places: Numbers, shares: Numbers, work_s: Numbers, waits_s: Numbers) -> None:
        taking = shares > 0
        mine, row = places[taking], self._num_seen % _NUM_RECENT
        self._ratios[row, mine] = work_s[taking] / self._table.only(mine).seconds(shares[taking])
        self._own_s[row, mine], self._waits_s[row, mine] = work_s[taking], waits_s[taking]
        self._is_known[mine] = True
        self._num_seen += 1

    def profile(self, place: int) -> ComputeProfile | None:
        if not self._is_known[place]:
            return None
        return self._profiles[place].slowed(float(np.median(self._ratios[:, place])))

    def reports(self, places: Numbers, shares: Numbers) -> list[CostReport]:
        paces = np.median(self._ratios[:, places], axis=0).tolist()
        waits_s = self._usual_waits_s(places).tolist()
        found = []
        for place, share, pace, wait_s in zip(places.tolist(), shares.tolist(), paces, waits_s, strict=True):
            profile = self._profiles[place] if self._is_known[place] else None
            report = CostReport.of(profile, max(1, share), wait_s)
            found.append(report if profile is None or pace == 1.0 else _at_pace(report, pace))
        return found

    def _usual_waits_s(self, places: Numbers) -> Numbers:
        """`usual_wait_s` of many workers at once."""
        num_seen = min(self._num_seen, _NUM_RECENT)
        if not num_seen:
            return np.zeros(len(places))
        own_s = self._own_s[:num_seen, places]
        whole_s = np.median(own_s + self._waits_s[:num_seen, places], axis=0)
        return np.asarray(np.maximum(0.0, whole_s - np.median(own_s, axis=0)))

    def forget_waits(self) -> None:
        self._own_s[:] = 0.0
        self._waits_s[:] = 0.0


def _at_pace(report: CostReport, pace: float) -> CostReport:
    bends = tuple(value * pace if index % 2 else value for index, value in enumerate(report.bends))
    return report._replace(fixed_s=report.fixed_s * pace, per_sample_s=report.per_sample_s * pace, bends=bends)


def with_spread(profile: ComputeProfile, spread: float) -> ComputeProfile:
    """The profile, with this spread if it has none of its own."""
    return profile if profile.spread else replace(profile, spread=spread)
