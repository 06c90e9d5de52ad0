"""A worker that ends stays for as long as its last sums may need, and no longer."""

import pytest

from potluck.engine.group.last_commit import LastCommit


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s

    def sleep(self, seconds):
        assert seconds > 0
        self.now_s += seconds


def waited_s(exchanged_s, later_s):
    """How long a worker stays that ends so long after a committed step with others; None: the step was its own."""
    clock = Clock()
    last = LastCommit(clock, clock.sleep)
    last.let_sums_arrive()
    assert clock.now_s == last.at == 100.0
    last.note(clock.now_s, exchanged_s=0.1)
    last.note(clock.now_s, exchanged_s=exchanged_s)
    clock.now_s += later_s
    before_s = clock.now_s
    last.let_sums_arrive()
    return clock.now_s - before_s


@pytest.mark.parametrize(
    ("exchanged_s", "later_s", "wanted_s"),
    [(None, 0.0, 0.0), (0.1, 0.0, 0.6), (0.1, 0.4, 0.2), (0.1, 5.0, 0.0), (60.0, 0.0, 3.0)],
)
def test_a_worker_stays_until_its_last_sums_should_have_arrived(exchanged_s, later_s, wanted_s):
    assert waited_s(exchanged_s, later_s) == pytest.approx(wanted_s)
