"""Bad luck for a short while: the laws hold through random kills, freezes, cuts, goodbyes and a lost lighthouse."""

import time

import pytest

from benchmarks.soak import laws_broken, soak
from benchmarks.support import long_soak

pytestmark = [pytest.mark.needs_lab, pytest.mark.real_world]


@pytest.mark.timeout(200)
def test_a_short_soak_breaks_no_law() -> None:
    figures = soak(minutes=0.5, seed=1)
    assert laws_broken(figures) == [], figures
    assert figures.steps > 50


@pytest.mark.timeout(1100)
def test_ten_minutes_of_everything_that_can_go_wrong_break_no_law() -> None:
    figures = long_soak.soak_long(hours=1 / 6, seed=int(time.time() / 86400))  # another seed every day
    print(figures)
    # How fast a calm minute is depends on what else this computer does: speeds are for `benchmarks.soak --hours 2`.
    assert [law for law in long_soak.laws_broken(figures) if "slower" not in law] == [], figures
    assert sum(figures.mishaps.values()) > 10, figures
