"""When machines leave the ring: the rest of the run must be shorter without them, whatever a step takes."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from potluck.planning.bench_rule import (
    GOING_ALONE_S,
    RE_FORMING_S,
    BenchTerms,
    alone,
    benching_pays,
    is_worth_a_try,
    least_gain_after,
    pays,
    plan_run,
    steps_left_of,
)
from potluck.planning.cluster import Cluster, Worker
from potluck.planning.costs import ComputeProfile, Exchange, LinkProfile

SECONDS = st.floats(1e-4, 100.0)
STEPS = st.integers(0, 1_000_000)


def terms(steps_left=math.inf, cost_s=RE_FORMING_S):
    return BenchTerms(steps_left=steps_left, re_forming_s=cost_s)


@given(now_s=SECONDS, then_s=SECONDS, steps_left=STEPS, cost_s=SECONDS)
def test_nobody_leaves_where_the_rest_of_the_run_saves_less_than_leaving_costs(now_s, then_s, steps_left, cost_s):
    if pays(now_s, then_s, terms(steps_left, cost_s)):
        assert steps_left * (now_s - then_s) > cost_s
        assert then_s < now_s


@given(now_s=SECONDS, part=st.floats(0.01, 0.9), steps_left=STEPS, cost_s=SECONDS)
def test_whoever_clearly_costs_more_than_leaving_leaves(now_s, part, steps_left, cost_s):
    assume(steps_left * now_s * (1 - part) > cost_s * 1.001)
    assert pays(now_s, now_s * part, terms(steps_left, cost_s))


@given(now_s=SECONDS, then_s=SECONDS, steps_left=STEPS, cost_s=SECONDS, power=st.integers(-10, 10))
def test_the_unit_of_time_does_not_matter(now_s, then_s, steps_left, cost_s, power):
    scale = 2.0**power  # exact in floating point
    assert pays(now_s, then_s, terms(steps_left, cost_s)) == pays(
        now_s * scale, then_s * scale, terms(steps_left, cost_s * scale)
    )


@pytest.mark.parametrize("step_s", [0.005, 0.05, 0.5])
def test_short_and_long_steps_have_one_rule(step_s):
    """Three times slower together: left as soon as the steps still to do save more than it costs."""
    break_even = RE_FORMING_S / (2 * step_s)
    assert not pays(3 * step_s, step_s, terms(math.floor(0.99 * break_even)))
    assert pays(3 * step_s, step_s, terms(math.ceil(1.01 * break_even)))


def test_noise_is_no_reason_however_long_the_run():
    assert not pays(1.0, 0.96, terms(cost_s=0.0))
    assert pays(1.0, 0.94, terms(cost_s=0.0))


def test_going_alone_costs_less_than_a_ring_that_forms_anew():
    pair, three = cluster(1.0, 100.0, wait_ms=1.0), cluster(1.0, 1.0, 100.0, wait_ms=1.0)
    single, ring = plan_run(pair, 64), plan_run(three, 64)
    assert (single.benched, ring.benched) == (("b",), ("c",))
    now_s, steps = 1.0, 2 * GOING_ALONE_S
    assert benching_pays(pair, single, now_s, terms(steps))
    assert not benching_pays(three, ring, now_s, terms(steps))
    assert benching_pays(three, ring, now_s, terms(2 * RE_FORMING_S))


def test_steps_left_are_endless_where_nobody_knows_the_end():
    assert steps_left_of(None, 5) == math.inf
    assert [steps_left_of(10, step) for step in (0, 10, 12)] == [10, 0, 0]


def test_each_return_makes_the_next_leaving_harder():
    gains = [least_gain_after(num_returns) for num_returns in range(8)]
    assert gains == sorted(gains)
    assert gains[:3] == [0.05, 0.10, 0.20]
    assert gains[-1] < 1.0


def cluster(*costs, wait_ms=0.0):
    """Machines a, b, ... by milliseconds a sample, and an exchange that takes this long among two."""
    workers = tuple(
        Worker(name=f"{name}-0", machine=name, compute=ComputeProfile(fixed_s=0.0, per_sample_s=cost / 1e3))
        for name, cost in zip("abcd", costs, strict=False)
    )
    link = LinkProfile(latency_s=wait_ms / 2e3, bandwidth_bytes_per_s=1e12)
    links = {worker.machine: link for worker in workers}
    return Cluster(workers=workers, links=links, exchange=Exchange(num_bytes=1))


def test_alone_is_the_machine_that_is_fastest_alone():
    plan = alone(cluster(2.0, 1.0, 4.0), 64)
    assert plan.shares == (0, 64, 0)
    assert plan.benched == ("a", "c")
    assert plan.prediction.step_s == pytest.approx(0.064)


@pytest.mark.parametrize("unit_ms", [0.01, 0.1, 1.0, 10.0])
def test_potluck_plan_leaves_out_by_the_same_rule(unit_ms):
    pair = cluster(unit_ms, 2 * unit_ms, wait_ms=64 * unit_ms)
    together_s, alone_s = (64 * 2 / 3 + 64) * unit_ms / 1e3, 64 * unit_ms / 1e3
    assert plan_run(pair, 64).benched == ("b",)
    break_even = GOING_ALONE_S / (together_s - alone_s)
    few, many = math.floor(0.9 * break_even), math.ceil(1.1 * break_even)
    if few:
        assert plan_run(pair, 64, num_steps=few).benched == ()
    assert plan_run(pair, 64, num_steps=many).benched == ("b",)
    assert plan_run(pair, 64, keep=["b"]).benched == ()


def test_a_try_is_made_only_where_alone_may_be_as_fast_and_the_run_is_long_enough():
    assert is_worth_a_try(0.050, 0.050, terms(10_000))
    assert not is_worth_a_try(0.050, 0.054, terms(10_000))
    assert not is_worth_a_try(0.050, 0.050, terms(500))


def test_who_cannot_keep_up_its_pace_is_not_the_one_that_trains_alone():
    """In a ring lily works in bursts as fast as rosa; its quota of 0.4 cores allows that for 40 % of the time."""
    compute = ComputeProfile(fixed_s=0.001, per_sample_s=0.001)
    workers = tuple(
        Worker(name=f"{name}-0", machine=name, compute=compute, stretch=stretch)
        for name, stretch in (("lily", 2.5), ("rosa", 1.25), ("fern", 5.0))
    )
    plan = alone(Cluster(workers=workers, links={}, exchange=Exchange(num_bytes=1)), 10)
    assert set(plan.benched) == {"lily", "fern"}
    assert plan.prediction.step_s == pytest.approx(1.25 * 0.011)


def test_a_batch_with_fewer_samples_than_workers_is_planned_for_some_of_them():
    plan = plan_run(cluster(1.0, 1.0, 1.0), 2)
    assert sorted(plan.shares) == [0, 1, 1]


def test_a_machine_that_trains_alone_pays_nothing_for_what_a_group_does_together():
    pair = replace(cluster(1.0, 1.0, wait_ms=100.0), overhead_s=0.05)
    together = plan_run(pair, 64, keep=["a", "b"]).prediction
    assert (together.overhead_s, together.step_s) == (0.05, pytest.approx(0.032 + 0.1 + 0.05, rel=0.01))
    single = plan_run(pair, 64)
    assert single.benched == ("b",)
    assert single.prediction.step_s == pytest.approx(0.064)
    near = replace(cluster(1.0, 1.0, wait_ms=1.0), overhead_s=0.05)
    assert plan_run(near, 64).benched == ("b",), "without the overhead both together would be faster"
