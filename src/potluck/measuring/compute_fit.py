"""A worker's cost from its timings: once from a trial, and again and again from a run's own steps."""

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from potluck.measuring.line_fit import Line, Timed, fit_line
from potluck.planning.costs import ComputeProfile

_WINDOW = 96
_HALF_LIFE = 32  # timings after which one counts half
_OTHER_PACES = ((4, 1.3), (16, 1.15))  # so many timings in a row beyond this factor: the machine itself has changed
_NEAR, _FAR_WEIGHT = 0.15, 0.3  # timings of sizes further away than this count less
_APART, _BEND = 1.25, 1.08  # sizes that are clearly others; a sample that clearly costs more
_LARGEST_PACE = 4.0
_BAD_FIT = 0.05
_SMALLEST_PART = 16


def profile_from_trial(seconds_by_size: Mapping[int, Sequence[float]], memory_cap: int | None = None) -> ComputeProfile:
    """The cost that a trial at several batch sizes shows; a curve through the medians where a line is far off."""
    medians = {size: statistics.median(times) for size, times in sorted(seconds_by_size.items())}
    # The smallest sizes often take kernels of their own, and hardly a share is so small.
    timings = [Timed(size, seconds) for size, seconds in medians.items() if size * _SMALLEST_PART >= max(medians)]
    line = fit_line(timings, [1.0] * len(timings))
    deviations = [abs(line.seconds(timed) / timed.seconds - 1) for timed in timings]
    noise = statistics.median(_relative_error(times) for times in seconds_by_size.values())
    profile = _as_profile(line, memory_cap, error=noise)
    if len(timings) < 3 or max(deviations) <= _BAD_FIT:
        return replace(profile, error=max(noise, statistics.median(deviations)))
    return _curve(medians, memory_cap, noise)


class ComputeFit:
    """Follows a worker's own work through a run. A machine that slows down is seen after four steps."""

    def __init__(self, prior: ComputeProfile | None = None, memory_cap: int | None = None) -> None:
        self._prior = prior
        self.memory_cap = memory_cap if memory_cap is not None or prior is None else prior.memory_cap
        self._timings: deque[Timed] = deque(maxlen=_WINDOW)

    def add(self, timed: Timed) -> None:
        """One committed step. A worker without samples shows nothing of its cost."""
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
        """The cost as of now; the prior before the first timing, None if there was none."""
        if not self._timings:
            return None if self._prior is None else replace(self._prior, memory_cap=self.memory_cap)
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
                # Old timings of other sizes contradict the new ones: believe the new.
                line = fit_line(timings[-count:], _weights(timings[-count:]), known)
                break
        return _as_profile(line, self.memory_cap, line.error)

    def _prior_at_this_pace(self, prior: ComputeProfile) -> ComputeProfile:
        prior = replace(prior, memory_cap=self.memory_cap)
        ratios = [timed.seconds / prior.seconds(timed.samples) for timed in list(self._timings)[-_HALF_LIFE:]]
        return replace(prior.slowed(statistics.median(ratios)), error=_relative_error(ratios))

    def _notice_another_pace(self) -> None:
        """Rescale what was seen before, if all recent timings say that the machine itself is slower or faster.

        Only timings of about the same size are compared: another size may cost more for other reasons.
        """
        timings = list(self._timings)
        for count, factor in _OTHER_PACES:
            recent, older = timings[-count:], timings[:-count]
            size = statistics.median(timed.samples for timed in recent)
            alike = [timed for timed in older if 1 / _APART <= timed.samples / size <= _APART]
            if len(alike) < _OTHER_PACES[0][0]:
                continue
            usual_s = statistics.median(timed.seconds / timed.samples for timed in alike)
            ratios = [timed.seconds / timed.samples / usual_s for timed in recent]
            if _are_beyond(factor, ratios):
                pace = statistics.median(ratios)
                self._timings.clear()
                if 1 / _LARGEST_PACE < pace < _LARGEST_PACE:  # beyond, it is no pace but a pause that came or went
                    self._timings.extend(timed._replace(seconds=timed.seconds * pace) for timed in older)
                self._timings.extend(recent)
                return


def _bent(timings: Sequence[Timed], memory_cap: int | None) -> ComputeProfile | None:
    """Where a sample of a larger part costs more than one of a smaller (caches overflow), which no line can say.

    Straight through the medians of the newest size and of the newest one that is clearly another; None elsewhere.
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
    if min(count for _, _, count, _ in ends) < 2 or more_s < _BEND * less_s:
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
    """All on one side, and far: noise seldom does that several times in a row."""
    return min(ratios) > factor or max(ratios) < 1 / factor


def _weights(timings: Sequence[Timed]) -> list[float]:
    """New timings count more than old ones, and those of about the newest size more than others: there it must fit."""
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
    """Straight from median to median; they must rise, so one below its predecessor is lifted a little above it."""
    points: list[tuple[int, float]] = []
    for size, seconds in medians.items():
        points.append((size, max(seconds, points[-1][1] * 1.001) if points else seconds))
    last, last_s = points[-1]
    apart = [point for point in points if point[0] * _APART <= last] or points[:-1]
    before, before_s = apart[-1]
    return ComputeProfile(
        fixed_s=points[0][1] / 2,  # below the smallest size nobody looked
        per_sample_s=(last_s - before_s) / (last - before),
        memory_cap=memory_cap,
        error=error,
        curve=tuple(points),
    )


def _relative_error(values: Sequence[float]) -> float:
    """The standard error of the median, relative, from absolute deviations."""
    middle = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(value - middle) for value in values)
    return float(spread / middle / len(values) ** 0.5)
