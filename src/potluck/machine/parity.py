"""A parity reading: what a small, fixed training step gives on this machine, to compare two versions of torch by.

Another process computes the reading, because importing torch takes seconds and may fail.
"""

import math
import sys
from collections.abc import Sequence

import msgspec

from potluck.core.errors import MeasureError
from potluck.machine.asking import NoAnswerError, ask

READING_S = 240.0  # on a slow machine, the first import of torch after its installation takes minutes
FLOAT32_LIMIT = 1e-5
"""float32 keeps 6e-8 of a number; the sums of one small step lose about ten times that."""
FLOAT64_LIMIT = 1e-10
"""The same limit as for any split of a batch over machines, see docs/training-script.md."""
MIXED_LIMIT = 0.02
"""bf16 keeps 4e-3 of a number: a gradient that several workers round and sum differs by that, step after step."""
_COMPUTE = [sys.executable, "-m", "potluck.probes.parity"]


class StepReading(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of one training step in one floating-point type."""

    loss: tuple[float, ...]
    """Before and after the optimizer's step."""
    gradient: tuple[float, ...]
    """Some values of every parameter's gradient."""
    parameters: tuple[float, ...]
    """Some values of every parameter after the optimizer's step."""


class ParityReading(msgspec.Struct, frozen=True, kw_only=True):
    """All that two machines must agree on before their unlike versions train together."""

    data_order: str
    """SHA-256 of shuffled sample indices, and of the random numbers that a dataset can draw."""
    initial_weights: str
    """SHA-256 of a model's parameters as torch initializes them from a seed."""
    float32: StepReading
    float64: StepReading


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first part of two parity readings that differs too much."""

    number: int
    """Which of the parity check's parts it is, counted from 1."""
    text: str


def read_parity() -> ParityReading:
    """This machine's reading; takes a few seconds. Raises MeasureError if there is none."""
    try:
        answer = ask(_COMPUTE, timeout_s=READING_S)
        return msgspec.json.decode(answer.strip().splitlines()[-1], type=ParityReading)
    except (NoAnswerError, ValueError, IndexError) as error:
        raise MeasureError(
            f"the parity check cannot be computed: {error}",
            fix="see what fails: python -m potluck.probes.parity",
        ) from None


def first_difference(own: ParityReading, other: ParityReading) -> Difference | None:
    """The first part in which `other` differs too much from `own`; data order and weights must agree in every bit."""
    parts = [
        _digests("data order", own.data_order, other.data_order),
        _digests("initial weights", own.initial_weights, other.initial_weights),
        *_numbers("float32", own.float32, other.float32, FLOAT32_LIMIT),
        *_numbers("float64", own.float64, other.float64, FLOAT64_LIMIT),
    ]
    return next(
        (
            Difference(number=number, text=f"part {number} of {len(parts)}, {text}")
            for number, text in enumerate(parts, start=1)
            if text
        ),
        None,
    )


def _digests(what: str, own: str, other: str) -> str:
    return "" if own == other else f"{what}: its digest is {other[:8]}, not {own[:8]}"


def _numbers(kind: str, own: StepReading, other: StepReading, limit: float) -> list[str]:
    pairs = (
        ("loss", own.loss, other.loss),
        ("gradient", own.gradient, other.gradient),
        ("parameters after a step", own.parameters, other.parameters),
    )
    return [_far_apart(f"{what} in {kind}", mine, theirs, limit) for what, mine, theirs in pairs]


def _far_apart(what: str, own: tuple[float, ...], other: tuple[float, ...], limit: float) -> str:
    """Empty if the largest difference is at most `limit` of the largest number."""
    if len(own) != len(other) or not own:
        return f"{what}: {len(other)} numbers, not {len(own)}"
    largest = largest_difference(own, other)
    return "" if largest <= limit else f"{what}: differs by {largest:.1e}, at most {limit:.0e} is allowed"


def largest_difference(own: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference between two numbers in the same place, as a fraction of the largest of `own`."""
    scale = max(map(abs, own)) or 1.0
    apart = [abs(mine - theirs) / scale for mine, theirs in zip(own, other, strict=True)]
    return next(filter(math.isnan, apart), max(apart))  # max alone would pass over NaN
