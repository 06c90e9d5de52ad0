"""The host is lost for good, and the run goes on: another machine takes its place."""

import pytest

from benchmarks.host_loss import is_good, measure

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(400), pytest.mark.real_world]


@pytest.mark.parametrize("case", ["killed", "frozen", "cut", "disk", "handover"])
def test_another_machine_takes_the_place_of_a_lost_host(case):
    figures = measure("laptops", case)
    print(figures)
    assert "failure" not in figures, figures["failure"]
    assert is_good(figures, stall_s=25.0), figures  # the benchmark's bar is 10 s, on a computer that does nothing else
