"""The one figure for how fast a run is now."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.events.recent_speed import RecentSpeed

STEPS = st.lists(st.tuples(st.integers(1, 512), st.floats(0.01, 9.0)), min_size=1, max_size=60)


@given(steps=STEPS, window_s=st.sampled_from([3.0, 5.0, 15.0]))
def test_it_is_that_of_the_longest_row_of_last_steps_that_fits_into_the_window_and_of_one_at_the_least(steps, window_s):
    speed = RecentSpeed(window_s)
    for samples, seconds in steps:
        speed.add(samples, seconds)
    fitting = [steps[-count:] for count in range(1, len(steps) + 1)]
    chosen = [last for last in fitting if sum(seconds for _, seconds in last) <= window_s] or fitting[:1]
    last = chosen[-1]
    took_s = sum(seconds for _, seconds in last)
    if abs(sum(seconds for _, seconds in steps[-len(last) - 1 :]) - window_s) > 1e-6 < abs(took_s - window_s):
        assert speed.samples_per_s == pytest.approx(sum(samples for samples, _ in last) / took_s)
        assert speed.step_s == pytest.approx(took_s / len(last))


def test_a_run_without_steps_has_no_speed():
    assert RecentSpeed().samples_per_s == RecentSpeed().step_s == 0.0
