"""Bad luck for a short while: the laws hold through random kills, freezes, cuts, goodbyes and a lost lighthouse."""

import pytest

from benchmarks.soak import laws_broken, soak

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(200), pytest.mark.real_world]


def test_a_short_soak_breaks_no_law() -> None:
    figures = soak(minutes=0.5, seed=1)
    assert laws_broken(figures) == [], figures
    assert figures.steps > 50
