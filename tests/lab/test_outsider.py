"""Whoever is not a member gets in nowhere, and the run does not feel it."""

import pytest

from benchmarks.outsider import LONGEST_STALL_S, attack

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(400), pytest.mark.slow]


def test_an_outsider_learns_takes_and_disturbs_nothing(tmp_path):
    result = attack(tmp_path)
    assert [name for name, one in result["attacks"].items() if not one["held"]] == []
    assert result["broken"] == 0
    assert result["same_bits"]
    assert result["longest_stall_s"] <= LONGEST_STALL_S
