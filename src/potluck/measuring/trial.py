"""A trial: real training steps at several batch sizes in turn, so that warming up affects all sizes alike."""

import time
from collections.abc import Callable, Sequence

_LEAST_ROUNDS = 3
_MOST_ROUNDS = 50
_LEAST_SIZES = 3
_STRETCH = 1.5  # times the budget, to reach large sizes: the fastest machine's share is one of them


def sizes_up_to(largest: int) -> list[int]:
    """Batch sizes to try: doubling, the largest included."""
    sizes = [1 << power for power in range(largest.bit_length()) if 1 << power < largest]
    return [*sizes, largest]


def run_trial(step: Callable[[int], None], sizes: Sequence[int], budget_s: float) -> dict[int, list[float]]:
    """Seconds of steps by batch size, without the largest if time is short; `step` returns when its work is done."""
    seconds: dict[int, list[float]] = {}
    began_s = time.perf_counter()
    for size in sizes:
        if len(seconds) >= _LEAST_SIZES:
            before, took_s = max(seconds), sum(times[0] for times in seconds.values())
            expected_s = seconds[before][0] * size / before
            left_s = _STRETCH * budget_s - (time.perf_counter() - began_s)
            if 2 * expected_s + (_LEAST_ROUNDS - 1) * (took_s + expected_s) > left_s:
                break
        step(size)  # not timed: the first step of a size also sets things up
        seconds[size] = [_timed(step, size)]
    for number in range(1, _MOST_ROUNDS):
        if number >= _LEAST_ROUNDS and time.perf_counter() - began_s > budget_s:
            break
        for size, times in seconds.items():
            times.append(_timed(step, size))
    return seconds


def _timed(step: Callable[[int], None], size: int) -> float:
    before_s = time.perf_counter()
    step(size)
    return time.perf_counter() - before_s
