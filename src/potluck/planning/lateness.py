"""How much later the last of several workers finishes than usual: a step waits for the latest of them, every time anew.

Worker i's own work takes a time around its usual work_i, with the standard deviation spread_i * work_i. Usually none is
late, but of many workers one nearly always is: the expected maximum of these times is above the largest usual time.

    E[max] = largest + integral over t of (1 - product_i F_i(t)), from the largest on, - integral of the product before

F_i is the distribution of the sum of three equal uniform numbers: bell-shaped like a normal distribution, but made of
additions and products only, so that every machine computes the same bits.
"""

import math

import numpy as np

from potluck.planning.water_filling import Numbers

_NUM_POINTS = 24
_FEW = 64
_WIDTH = 3.0  # standard deviations in which all of the distribution lies
_MOST_SPREAD = 1.0
_SURE = 1e-6  # of the slowest worker's time: less than this is no deviation


def expected_latest_s(work_s: Numbers, spread: Numbers) -> float:
    """The mean time at which the last worker finishes: `work_s` are usual times, `spread` relative deviations."""
    slowest_s = float(work_s.max())
    deviation_s = work_s * np.minimum(spread, _MOST_SPREAD)
    deviation_s = np.where(deviation_s > _SURE * slowest_s, deviation_s, 0.0)
    latest_s = float((work_s + _WIDTH * deviation_s).max())
    if latest_s <= slowest_s:
        return slowest_s
    earliest_s = float((work_s - _WIDTH * deviation_s).max())  # before, one of the workers is certainly not done
    may_be_last = work_s + _WIDTH * deviation_s > earliest_s
    work_s, deviation_s = work_s[may_be_last], deviation_s[may_be_last]
    width_s = (latest_s - earliest_s) / _NUM_POINTS
    middles_s = earliest_s + width_s * (np.arange(_NUM_POINTS) + 0.5)
    if len(work_s) > _FEW:  # many workers are often of a few kinds
        kinds, counts = np.unique(work_s + 1j * deviation_s, return_counts=True)
        done = _power(_distribution(middles_s, kinds.real[:, None], kinds.imag[:, None]), counts[:, None])
    else:
        done = _distribution(middles_s, work_s[:, None], deviation_s[:, None])
    # Row by row, so that the order of the products, and with it the last bit, is the same everywhere.
    all_done = np.multiply.reduce(done, axis=0)
    return earliest_s + width_s * math.fsum((1.0 - all_done).tolist())


def _power(base: Numbers, exponents: Numbers) -> Numbers:
    """Whole powers by products alone: pow() may round differently elsewhere."""
    result, left = np.ones_like(base), np.broadcast_to(exponents, base.shape)
    while left.any():
        result = np.where(left & 1, result * base, result)
        base, left = base * base, left >> 1
    return result


def _distribution(at_s: Numbers, work_s: Numbers, deviation_s: Numbers) -> Numbers:
    """The probability that a worker is done at a time; a worker without a spread is done exactly at its usual time."""
    is_sure = deviation_s <= 0
    place = (at_s - work_s) / np.where(is_sure, 1.0, deviation_s)
    u = np.clip((place + _WIDTH) / 2, 0.0, 3.0)
    rising = u * u * u / 6
    middle = (((9 - 2 * u) * u - 9) * u + 3) / 6
    rest = 3 - u
    falling = 1 - rest * rest * rest / 6
    bell = np.where(u < 1, rising, np.where(u < 2, middle, falling))
    return np.where(is_sure, (at_s >= work_s).astype(float), bell)
