"""Benchmarks of lab machines run to their end, each in its shortest form."""

import pytest

from tests.benchmark_runs import IN_THE_LAB, run_shortest

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(440), pytest.mark.real_world]


@pytest.mark.parametrize("name", IN_THE_LAB)
def test_a_benchmark_runs_to_its_end(name):
    run_shortest(name, IN_THE_LAB[name], timeout_s=420)
