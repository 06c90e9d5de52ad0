"""Fits a worker's ComputeProfile to timings: once to a trial, and continuously to the steps of a run."""

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from potluck.measuring.line_fit import Line, Timed, fit_line
from potluck.planning.costs import ComputeProfile

_WINDOW = 96
_HALF_LIFE = 32  # newer timings after which a timing counts half
# (timings in a row, factor): all beyond it, and the machine's speed has changed
_OTHER_PACES = ((2, 2.0), (4, 1.3), (16, 1.15))
_LEAST_ALIKE = 4  # older timings to compare with
_NEAR, _FAR_WEIGHT = 0.15, 0.3  # timings whose size differs by more than _NEAR get _FAR_WEIGHT
_APART, _BEND = 1.25, 1.08  # the factor of a clearly different size; of a clearly higher cost of a sample
_MOST_BEND = 2.2  # caches that overflow cost up to twice as much; beyond, the machine's pace has changed meanwhile
_LARGEST_PACE = 4.0
_BAD_FIT = 0.05
_SMALLEST_PART = 16
_LEAST_FOR_SPREAD = 8  # timings
_OUTLIER = 2.0  # a step that took this much longer than usual was a pause of the machine, not its usual variation


def profile_from_trial(seconds_by_size: Mapping[int, Sequence[float]], memory_cap: int | None = None) -> ComputeProfile:
    """The profile that fits a trial at several batch sizes; a curve through the medians where a line fits badly."""
    medians = {size: statistics.median(times) for size, times in sorted(seconds_by_size.items())}
    # The smallest sizes often run other kernels, and a share is hardly ever that small.
    timings = [Timed(size, seconds) for size, seconds in medians.items() if size * _SMALLEST_PART >= max(medians)]
    line = fit_line(timings, [1.0] * len(timings))
    deviations = [abs(line.seconds(timed) / timed.seconds - 1) for timed in timings]
    noise = statistics.median(_relative_error(times) for times in seconds_by_size.values())
    spread = _spread(
        [took_s / medians[timed.samples] for timed in timings for took_s in seconds_by_size[timed.samples]]
    )
    profile = _as_profile(line, memory_cap, error=noise)
    if len(timings) < 3 or max(deviations) <= _BAD_FIT:
        return replace(profile, error=max(noise, statistics.median(deviations)), spread=spread)
    return replace(_curve(medians, memory_cap, noise), spread=spread)


class ComputeFit:
    """The profile of a worker's own work, refitted during a run; two steps show that a machine is half as fast."""

    def __init__(self, prior: ComputeProfile | None = None, memory_cap: int | None = None) -> None:
        self._prior = prior
        self.memory_cap = memory_cap if memory_cap is not None or prior is None else prior.memory_cap
        self._timings: deque[Timed] = deque(maxlen=_WINDOW)

    def add(self, timed: Timed) -> None:
        """Add the timing of one committed step; a step without samples says nothing about the cost and is left out."""
        if timed.samples < 1 or timed.seconds <= 0:
            return
        self._timings.append(timed)
        self._notice_another_pace()

    def snapshot(self) -> "ComputeFit":
        """A copy with the timings up to now."""
        copy = ComputeFit(self._prior, self.memory_cap)
        copy._timings = self._timings.copy()
        return copy

    def profile(self) -> ComputeProfile | None:
        """The profile as of now; before the first timing the prior, None if there is no prior."""
        if not self._timings:
            return None if self._prior is None else replace(self._prior, memory_cap=self.memory_cap)
        fitted = self._fitted()
        if len(self._timings) < _LEAST_FOR_SPREAD:
            return replace(fitted, spread=0.0 if self._prior is None else self._prior.spread)
        recent = list(self._timings)[-_HALF_LIFE:]
        # Around the median of these ratios: a fit that is a little off is no variation from step to step.
        ratios = [timed.seconds / (timed.samples * _usual_s(recent, timed.samples)) for timed in recent]
        return replace(fitted, spread=_spread(ratios))

    def _fitted(self) -> ComputeProfile:
        if self._prior is not None and self._prior.curve:
            return self._prior_at_this_pace(self._prior)
        known = None if self._prior is None else self._prior.fixed_s / self._prior.per_sample_s
        timings = list(self._timings)
        bent = _bent(timings, self.memory_cap)
        if bent is not None:
            return bent
        line = fit_line(timings, _weights(timings), known)
        ratios = [timed.seconds / line.seconds(timed) for timed in timings]
        for count, factor in _OTHER_PACES:
            if len(timings) > count and _are_beyond(factor, ratios[-count:]):
                # Old timings of other sizes contradict the new ones: fit the new ones only.
                line = fit_line(timings[-count:], _weights(timings[-count:]), known)
                break
        return _as_profile(line, self.memory_cap, line.error)

    def _prior_at_this_pace(self, prior: ComputeProfile) -> ComputeProfile:
        prior = replace(prior, memory_cap=self.memory_cap)
        ratios = [timed.seconds / prior.seconds(timed.samples) for timed in list(self._timings)[-_HALF_LIFE:]]
        return replace(prior.slowed(statistics.median(ratios)), error=_relative_error(ratios))

    def _notice_another_pace(self) -> None:
        """Rescale older timings if all recent ones show that the machine itself has become slower or faster.

        Only timings of about the same size are compared: another size may cost more for other reasons.
        """
        timings = list(self._timings)
        for count, factor in _OTHER_PACES:
            recent, older = timings[-count:], timings[:-count]
            size = statistics.median(timed.samples for timed in recent)
            alike = [timed for timed in older if 1 / _APART <= timed.samples / size <= _APART]
            if len(alike) < _LEAST_ALIKE:
                continue
            usual_s = statistics.median(timed.seconds / timed.samples for timed in alike)
            ratios = [timed.seconds / timed.samples / usual_s for timed in recent]
            if _are_beyond(factor, ratios):
                pace = statistics.median(ratios)
                self._timings.clear()
                if 1 / _LARGEST_PACE < pace < _LARGEST_PACE:  # beyond, a pause began or ended
                    self._timings.extend(timed._replace(seconds=timed.seconds * pace) for timed in older)
                self._timings.extend(recent)
                return


def _bent(timings: Sequence[Timed], memory_cap: int | None) -> ComputeProfile | None:
    """The profile of a worker whose samples cost more in larger batches (caches overflow), which no line can express.

    It goes straight through the medians of two sizes: the newest, and the newest that clearly differs from it. None if
    timings of two such sizes are missing, samples of the larger size do not clearly cost more, or a step had several
    micro-batches.
    """
    newest = timings[-1].samples
    others = [timed for timed in timings if not 1 / _APART < timed.samples / newest < _APART]
    if not others or any(timed.pieces > 1 for timed in timings):
        return None
    ends = []
    for size in (newest, others[-1].samples):
        alike = [timed for timed in timings if abs(timed.samples / size - 1) < _NEAR][-_HALF_LIFE:]
        of_one = [timed.seconds / timed.samples for timed in alike]
        ends.append((size, statistics.median(of_one), len(of_one), _relative_error(of_one)))
    (less, less_s, *_), (more, more_s, *_) = sorted(ends)
    if min(count for _, _, count, _ in ends) < 2 or not _BEND * less_s <= more_s <= _MOST_BEND * less_s:
        return None
    slope = (more * more_s - less * less_s) / (more - less)
    return ComputeProfile(
        fixed_s=0.0,
        per_sample_s=slope,
        memory_cap=memory_cap,
        error=max(error for *_, error in ends),
        curve=((less, less * less_s),),
    )


def _are_beyond(factor: float, ratios: Sequence[float]) -> bool:
    """Whether all ratios are above the factor, or all below its inverse: noise seldom does that many times in a row."""
    return min(ratios) > factor or max(ratios) < 1 / factor


def _weights(timings: Sequence[Timed]) -> list[float]:
    """New timings weigh more than old ones, timings near the newest size more than others: the fit is used there."""
    newest = timings[-1].samples
    return [
        0.5 ** ((len(timings) - 1 - index) / _HALF_LIFE)
        * (1.0 if abs(timed.samples / newest - 1) < _NEAR else _FAR_WEIGHT)
        for index, timed in enumerate(timings)
    ]


def _as_profile(line: Line, memory_cap: int | None, error: float) -> ComputeProfile:
    return ComputeProfile(
        fixed_s=line.fixed_samples * line.per_sample_s,
        per_sample_s=line.per_sample_s,
        memory_cap=memory_cap,
        error=error,
    )


def _curve(medians: Mapping[int, float], memory_cap: int | None, error: float) -> ComputeProfile:
    """A profile straight from median to median; seconds must rise, so a lower median is lifted just above the last."""
    points: list[tuple[int, float]] = []
    for size, seconds in medians.items():
        points.append((size, max(seconds, points[-1][1] * 1.001) if points else seconds))
    last, last_s = points[-1]
    apart = [point for point in points if point[0] * _APART <= last] or points[:-1]
    before, before_s = apart[-1]
    return ComputeProfile(
        fixed_s=points[0][1] / 2,  # a guess: no smaller size was measured
        per_sample_s=(last_s - before_s) / (last - before),
        memory_cap=memory_cap,
        error=error,
        curve=tuple(points),
    )


def _spread(ratios: Sequence[float]) -> float:
    """The relative standard deviation of timings, from their ratios to the usual time; pauses do not count.

    From the mean of absolute deviations: a step that is much longer counts, but not by the square.
    """
    deviations = [abs(ratio - 1) for ratio in ratios if ratio < _OUTLIER]
    return 1.2533 * statistics.fmean(deviations) if deviations else 0.0


def _usual_s(timings: Sequence[Timed], samples: int) -> float:
    """The median seconds of a sample in steps of about this size."""
    alike = [timed for timed in timings if 1 / _APART <= timed.samples / samples <= _APART]
    return statistics.median(timed.seconds / timed.samples for timed in alike)


def _relative_error(values: Sequence[float]) -> float:
    """The relative standard error of the median, from absolute deviations."""
    middle = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(value - middle) for value in values)
    return float(spread / middle / len(values) ** 0.5)
