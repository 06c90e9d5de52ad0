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
_MOST_S = 10.0


class Numbers(NamedTuple):
    """What a pass forward and backward gives."""

    outputs: Sequence[Tensor]
    gradients: Sequence[Tensor]


Trial = Callable[[Tuning], Numbers]
"""A pass on one batch; returns when its work is done."""


def find_tuning(trial: Trial, *, has_images: bool, is_on_cpu: bool) -> Tuning:
    """Try every way that may help; after ten seconds no new one is begun."""
    began_s, chosen = time.perf_counter(), Tuning()
    default = trial(chosen)  # not timed: the first pass also sets things up
    if has_images:
        chosen = _try_channels_last(trial, default, chosen)
    if is_on_cpu and time.perf_counter() - began_s < _MOST_S:
        chosen = _try_allocator(trial, chosen)
    return chosen


def _try_channels_last(trial: Trial, default: Numbers, chosen: Tuning) -> Tuning:
    candidate = replace(chosen, channels_last=True)
    try:
        numbers = trial(candidate)
    except RuntimeError:  # a view that such images do not have
        return chosen
    if not are_alike(default, numbers):
        return chosen
    pairs = [(_seconds(trial, chosen), _seconds(trial, candidate)) for _ in range(_NUM_PASSES)]
    before_s, after_s = map(min, zip(*pairs, strict=True))
    return _judge(chosen, candidate, "channels_last", before_s / after_s)


def _try_allocator(trial: Trial, chosen: Tuning) -> Tuning:
    """The same numbers by nature; before and after follow each other, because thresholds once set stay fixed."""
    before_s = min(_seconds(trial, chosen) for _ in range(_NUM_PASSES))
    if not allocator.keep_freed_memory():
        return chosen
    trial(chosen)  # takes the memory that later passes keep
    after_s = min(_seconds(trial, chosen) for _ in range(_NUM_PASSES))
    judged = _judge(chosen, replace(chosen, keeps_memory=True), "allocator", before_s / after_s)
    if not judged.keeps_memory:
        allocator.give_back_freed_memory()
    return judged


def _judge(chosen: Tuning, candidate: Tuning, way: str, gain: float) -> Tuning:
    better = candidate if gain >= _LEAST_GAIN else chosen
    return replace(better, gains={**chosen.gains, way: round(gain, 3)})


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
    pairs = [(a.detach().double(), b.detach().double()) for a, b in zip(one, other, strict=True)]
    difference = sum(float((a - b).square().sum()) for a, b in pairs) ** 0.5
    size = sum(float(a.square().sum()) for a, _ in pairs) ** 0.5
    return bool(difference <= tolerance * size)
