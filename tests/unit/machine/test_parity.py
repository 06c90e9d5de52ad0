import math
import sys

import pytest
from msgspec.structs import replace

from potluck.core.errors import MeasureError
from potluck.machine import parity
from potluck.machine.parity import ParityReading, StepReading, first_difference, read_parity

STEP = StepReading(loss=(1.6, 1.5), gradient=(0.5, -0.25, 0.0), parameters=(1.0, 2.0, -4.0))
OWN = ParityReading(data_order="a" * 64, initial_weights="b" * 64, float32=STEP, float64=STEP)


def test_equal_readings_have_no_difference():
    assert first_difference(OWN, OWN) is None


@pytest.mark.parametrize(
    ("other", "number", "words"),
    [
        (replace(OWN, data_order="c" * 64), 1, "data order: its digest is cccccccc, not aaaaaaaa"),
        (replace(OWN, initial_weights="c" * 64), 2, "initial weights: its digest is cccccccc, not bbbbbbbb"),
        (replace(OWN, float32=replace(STEP, loss=(1.6, 1.6))), 3, "loss in float32: differs by 6.3e-02, at most 1e-05"),
        (replace(OWN, float32=replace(STEP, gradient=(0.5, math.nan, 0.0))), 4, "gradient in float32: differs by nan"),
        (replace(OWN, float32=replace(STEP, parameters=(1.0,))), 5, "parameters after a step in float32: 1 numbers"),
        (replace(OWN, float64=replace(STEP, loss=(math.inf, 1.5))), 6, "loss in float64: differs by inf"),
        (replace(OWN, float64=replace(STEP, gradient=(0.5, -0.25, 1e-9))), 7, "differs by 2.0e-09, at most 1e-10"),
        (replace(OWN, float64=replace(STEP, parameters=())), 8, "0 numbers, not 3"),
    ],
)
def test_the_first_part_that_differs_is_named_with_its_number(other, number, words):
    found = first_difference(OWN, other)
    assert found is not None
    assert found.number == number
    assert found.text.startswith(f"part {number} of 8, ")
    assert words in found.text


def test_rounding_is_no_difference():
    near = replace(STEP, gradient=(0.5 + 1e-6, -0.25, 0.0))
    assert first_difference(OWN, replace(OWN, float32=near)) is None
    assert first_difference(OWN, replace(OWN, float64=replace(STEP, loss=(1.6 + 1e-11, 1.5)))) is None


@pytest.mark.parametrize("code", ["raise ImportError('no torch here')", "print('{}')", ""])
def test_a_reading_that_cannot_be_computed_is_an_error_with_the_command_that_shows_why(monkeypatch, code):
    monkeypatch.setattr(parity, "_COMPUTE", [sys.executable, "-c", code])
    with pytest.raises(MeasureError, match="parity check cannot be computed") as failed:
        read_parity()
    assert "python -m potluck.probes.parity" in failed.value.fix


@pytest.mark.slow
def test_two_processes_read_the_same_bits():
    first, second = read_parity(), read_parity()
    assert first == second
    assert len(first.float32.gradient) > 50
    assert first.float32 != first.float64
