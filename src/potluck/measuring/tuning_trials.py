"""Finds the fastest way in which this machine does the same maths: each way is tried on one real batch.

A way counts only if it gives the default's numbers to the promised tolerance, and is clearly faster.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from potluck.measuring import allocator
from potluck.measuring.tuning import Tuning

OUTPUT_TOLERANCE = 1e-4
"""The norm of the difference by the norm. Rounding in fp32 makes 1e-5 in deep models."""
GRADIENT_TOLERANCE = 0.02
"""Where the input of a ReLU is within rounding of zero, its gradient jumps: 0.006 in one batch of a ResNet."""
_LEAST_GAIN = 1.03
_NUM_PASSES = 4  # of which the fastest counts: whatever else the machine does only makes a pass longer
_NOT_SLOWER = 0.9  # before and after are seconds apart, in which a machine may get slower
_PASSES_AT_MOST = 30  # in all of find_tuning
_MOST_S = 10.0


class Numbers(NamedTuple):
    """What a pass forward and backward gives."""

    outputs: Sequence[Tensor]
    gradients: Sequence[Tensor]


Trial = Callable[[Tuning], Numbers]
"""A pass on one batch; returns when its work is done."""


def find_tuning(make_trial: Callable[[float], Trial], *, has_images: bool, is_on_cpu: bool) -> Tuning:
    """Try every way that may help, in about ten seconds after the first pass.

    `make_trial`: makes a trial with this part of the batch; a smaller one where passes take long.
    """
    chosen = Tuning()
    if not has_images and not is_on_cpu:
        return chosen
    trial, most_s, began_s = make_trial(1.0), _MOST_S / _PASSES_AT_MOST, time.perf_counter()
    if (pass_s := _seconds(trial, chosen)) > most_s and _seconds(trial, chosen) > most_s:  # the first sets things up
        trial = make_trial(most_s / pass_s)
        trial(chosen)
        if _seconds(trial, chosen) > 2 * most_s:
            return chosen  # fewer samples do not make it short
    if has_images:
        chosen = try_way(trial, chosen, replace(chosen, channels_last=True), "channels_last")
    if is_on_cpu and time.perf_counter() - began_s < 2 * _MOST_S:
        chosen = _try_allocator(trial, chosen)
    return chosen


def try_way(trial: Trial, chosen: Tuning, candidate: Tuning, way: str) -> Tuning:
    """The candidate if it gives the same numbers and is clearly faster; else `chosen`, with the candidate's gain."""
    try:
        if not are_alike(trial(chosen), trial(candidate)):
            return chosen
    except RuntimeError:  # a view that such images do not have; a compiler that is not there
        return chosen
    gain = _gain(lambda: _seconds(trial, chosen), lambda: _seconds(trial, candidate))
    return _judge(chosen, candidate, way, gain, _LEAST_GAIN)


def compare_speed(trial: Trial, other: Trial) -> float:
    """How many times as fast `other` is."""
    other(Tuning())
    return round(_gain(lambda: _seconds(trial, Tuning()), lambda: _seconds(other, Tuning())), 3)


def _try_allocator(trial: Trial, chosen: Tuning) -> Tuning:
    """The same numbers by nature, so it is taken unless it is clearly slower: what it saves grows with the batch.

    With 32 samples of a small network it may save nothing, and with 64 a fifth of the time. Before and after follow
    each other: glibc adapts its thresholds while a program runs, until they are set for good.
    """
    before_s = _least_seconds(trial, chosen)
    if not allocator.keep_freed_memory():
        return chosen
    trial(chosen)  # takes the memory that later passes keep
    gain = before_s / _least_seconds(trial, chosen)
    judged = _judge(chosen, replace(chosen, keeps_memory=True), "allocator", gain, _NOT_SLOWER)
    if not judged.keeps_memory:
        allocator.give_back_freed_memory()
    return judged


def _least_seconds(trial: Trial, chosen: Tuning) -> float:
    return min(_seconds(trial, chosen) for _ in range(2 * _NUM_PASSES))


def _judge(chosen: Tuning, candidate: Tuning, way: str, gain: float, least: float) -> Tuning:
    better = candidate if gain >= least else chosen
    return replace(better, gains={**chosen.gains, way: round(gain, 3)})


def _gain(before: Callable[[], float], after: Callable[[], float]) -> float:
    """By times in turns, of which the shortest counts."""
    pairs = [(before(), after()) for _ in range(_NUM_PASSES)]
    return min(one for one, _ in pairs) / min(other for _, other in pairs)


def _seconds(trial: Trial, tuning: Tuning) -> float:
    began_s = time.perf_counter()
    trial(tuning)
    return time.perf_counter() - began_s


def are_alike(one: Numbers, other: Numbers) -> bool:
    """Whether outputs and gradients agree to their tolerances."""
    are_outputs_alike = _are_close(one.outputs, other.outputs, OUTPUT_TOLERANCE)
    return are_outputs_alike and _are_close(one.gradients, other.gradients, GRADIENT_TOLERANCE)


def _are_close(one: Sequence[Tensor], other: Sequence[Tensor], tolerance: float) -> bool:
    if len(one) != len(other):
        return False
    difference = size = 0.0
    for a, b in zip(one, other, strict=True):
        wide = a.detach().double()
        size += float(wide.square().sum())
        difference += float((wide - b.detach()).square().sum())
    return bool(difference**0.5 <= tolerance * size**0.5)
