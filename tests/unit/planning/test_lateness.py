"""The expected maximum of several workers' times, and predictions with it."""

import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.measuring.compute_fit import ComputeFit, profile_from_trial
from potluck.measuring.line_fit import Timed
from potluck.measuring.profile_store import StoredProfile
from potluck.planning.cluster import Cluster, Worker
from potluck.planning.costs import ComputeProfile, Exchange
from potluck.planning.lateness import expected_latest_s
from potluck.planning.plan import make_plan
from potluck.planning.replanning.cost_report import CostReport


@pytest.mark.parametrize(
    ("work_s", "spread"),
    [
        ([1.0, 1.0], [0.1, 0.1]),
        ([1.0, 1.0, 1.0], [0.2, 0.1, 0.09]),
        ([1.0, 0.99], [0.0, 0.1]),
        ([1.0, 0.5], [0.1, 0.1]),
        ([0.3] * 8, [0.15] * 8),
    ],
)
def test_the_expected_latest_is_that_of_many_draws(work_s, spread):
    draws = np.random.default_rng(0).standard_normal((100_000, len(work_s)))
    drawn = (np.array(work_s) * (1 + np.array(spread) * draws)).max(1).mean()
    assert expected_latest_s(np.array(work_s), np.array(spread)) == pytest.approx(drawn, rel=0.01)


@given(
    st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 0.4)), min_size=1, max_size=6),
    st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 0.4)),
)
def test_nobody_finishes_before_the_slowest_and_one_more_worker_is_never_earlier(workers, another):
    fewer = expected_latest_s(*(np.array(column) for column in zip(*workers, strict=True)))
    more = expected_latest_s(*(np.array(column) for column in zip(*workers, another, strict=True)))
    slowest = max(work_s for work_s, _ in workers)
    assert fewer >= slowest * (1 - 0.01)
    assert more >= fewer * (1 - 0.02) - 1e-12


def test_without_a_spread_the_latest_is_the_slowest():
    assert expected_latest_s(np.array([0.2, 0.7]), np.array([0.0, 0.0])) == 0.7


def cluster_with(spread):
    cost = ComputeProfile(fixed_s=0.0, per_sample_s=0.01, spread=spread)
    workers = tuple(Worker(name=f"{name}-0", machine=name, compute=cost) for name in ("fern", "lily", "rosa"))
    return Cluster(workers=workers, links={}, exchange=Exchange(num_bytes=0))


def test_a_prediction_counts_the_wait_for_whoever_is_late():
    sure, unsure = (make_plan(cluster_with(spread), 30).prediction for spread in (0.0, 0.1))
    assert sure.step_s == pytest.approx(0.1)
    assert unsure.step_s == pytest.approx(0.1 * (1 + 0.846 * 0.1), rel=0.005)
    assert unsure.step_s == pytest.approx(unsure.slowest_work_s + unsure.lateness_s)


def test_a_trial_and_a_run_measure_the_spread():
    generator = random.Random(1)
    sizes = {size: [0.01 * size * generator.gauss(1, 0.1) for _ in range(40)] for size in (16, 32, 64)}
    assert profile_from_trial(sizes).spread == pytest.approx(0.1, rel=0.3)
    fit = ComputeFit()
    for _ in range(60):
        fit.add(Timed(32, 0.32 * generator.gauss(1, 0.1)))
    assert fit.profile().spread == pytest.approx(0.1, rel=0.5)


def test_a_pause_is_no_spread():
    generator = random.Random(1)
    fit = ComputeFit()
    for number in range(32):
        fit.add(Timed(32, 0.32 * generator.gauss(1, 0.01) + (5.0 if number == 20 else 0.0)))
    assert fit.profile().spread < 0.03


def test_a_few_steps_keep_the_spread_of_the_profile_that_a_run_begins_with():
    fit = ComputeFit(ComputeProfile(fixed_s=0.0, per_sample_s=0.01, spread=0.2))
    for _ in range(3):
        fit.add(Timed(32, 0.32))
    assert fit.profile().spread == 0.2


def test_the_spread_travels_in_a_cost_report():
    cost = ComputeProfile(fixed_s=0.01, per_sample_s=0.002, spread=0.12, curve=((8, 0.1), (64, 0.4)))
    report = CostReport.of(cost, 8, 0.1)
    assert CostReport.read(report.floats) == report
    assert report.profile.spread == 0.12


def test_a_profile_of_an_earlier_version_has_no_spread():
    stored = StoredProfile.model_validate_json(
        '{"machine": "rosa", "device": "cpu", "model": "simple_cnn-base", "precision": "no", "gradient_bytes": 4,'
        ' "compute": {"fixed_s": 0.01, "per_sample_s": 0.002, "memory_cap": null, "error": 0.02, "curve": []}}'
    )
    assert stored.compute.spread == 0.0


def test_plans_with_equal_machines_are_later_the_more_there_are():
    cost = ComputeProfile(fixed_s=0.0, per_sample_s=0.01, spread=0.1)

    def step_s(count):
        workers = tuple(Worker(name=f"m{k}-0", machine=f"m{k}", compute=cost) for k in range(count))
        return make_plan(Cluster(workers=workers, links={}, exchange=Exchange(num_bytes=0)), 10 * count).prediction

    steps = [step_s(count).step_s for count in (1, 2, 4, 8)]
    assert steps == sorted(steps)
    assert statistics.fmean(steps) < 0.13
