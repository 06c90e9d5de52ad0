"""A worker that ends stays for as long as its last sums may need, and no longer."""

import pytest

from potluck.engine.group.last_sums import LastSums


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s

    def sleep(self, seconds):
        assert seconds > 0
        self.now_s += seconds


def waited_s(step_s, later_s):
    """How long a worker stays that ends so long after a committed step of so many seconds; None: it made no step."""
    clock = Clock()
    sums = LastSums(clock, clock.sleep)
    if step_s is not None:
        sums.committed(step_s)
    clock.now_s += later_s
    before_s = clock.now_s
    sums.wait_until_arrived()
    return clock.now_s - before_s


@pytest.mark.parametrize(
    ("step_s", "later_s", "wanted_s"),
    [(None, 0.0, 0.0), (0.1, 0.0, 0.6), (0.1, 0.4, 0.2), (0.1, 5.0, 0.0), (60.0, 0.0, 3.0)],
)
def test_a_worker_stays_until_its_last_sums_should_have_arrived(step_s, later_s, wanted_s):
    assert waited_s(step_s, later_s) == pytest.approx(wanted_s)
