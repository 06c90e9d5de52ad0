"""A trial: real steps at several batch sizes, in turns, so that a machine that warms up does so for all sizes alike."""

import time
from collections.abc import Callable, Sequence

_LEAST_ROUNDS = 3
_MOST_ROUNDS = 50


def sizes_up_to(largest: int) -> list[int]:
    """Batch sizes to try: doubling, the largest included."""
    sizes = [1 << power for power in range(largest.bit_length()) if 1 << power < largest]
    return [*sizes, largest]


def run_trial(step: Callable[[int], None], sizes: Sequence[int], budget_s: float) -> dict[int, list[float]]:
    """Seconds of steps by batch size; `step` returns when its work is done. Large sizes go when time is short."""
    chosen, began_s = [], time.perf_counter()
    for size in sizes:  # the first step of a size sets things up, and tells what there is time for
        step(size)
        before_s = time.perf_counter()
        step(size)
        took_s = time.perf_counter() - before_s
        chosen.append(size)
        left_s = budget_s - (time.perf_counter() - began_s)
        if len(chosen) >= 3 and 2 * took_s * 2 * _LEAST_ROUNDS > left_s:
            break  # the next size would take twice as long
    seconds: dict[int, list[float]] = {size: [] for size in chosen}
    for number in range(_MOST_ROUNDS):
        if number >= _LEAST_ROUNDS and time.perf_counter() - began_s > budget_s:
            break
        for size in chosen:
            before_s = time.perf_counter()
            step(size)
            seconds[size].append(time.perf_counter() - before_s)
    return seconds
