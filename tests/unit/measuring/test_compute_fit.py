"""Costs from timings: right where there is enough to see, sensible where there is little, quick where things change."""

import random

import pytest

from potluck.measuring.compute_fit import ComputeFit, profile_from_trial
from potluck.measuring.line_fit import Timed, fit_line
from potluck.planning.costs import ComputeProfile

TRUE = ComputeProfile(fixed_s=0.02, per_sample_s=0.002)


def noisy(cost, samples, generator, spread=0.03):
    return Timed(samples, cost.seconds(samples) * generator.lognormvariate(0, spread))


@pytest.mark.parametrize("fixed_s", [0.0, 0.0005, 0.02, 0.5])
def test_a_line_is_found_from_noisy_timings(fixed_s):
    generator = random.Random(1)
    cost = ComputeProfile(fixed_s=fixed_s, per_sample_s=0.002)
    timings = [noisy(cost, size, generator) for size in (4, 8, 16, 32, 64) for _ in range(8)]
    line = fit_line(timings, [1.0] * len(timings))
    for size in (4, 20, 64, 100):
        assert line.seconds(Timed(size, 0.0)) == pytest.approx(cost.seconds(size), rel=0.06)


def test_a_pause_now_and_then_moves_nothing():
    timings = [Timed(size, TRUE.seconds(size) * (20 if index == 3 else 1)) for size in (8, 32) for index in range(9)]
    line = fit_line(timings, [1.0] * len(timings))
    assert line.seconds(Timed(16, 0.0)) == pytest.approx(TRUE.seconds(16), rel=0.01)


def test_pieces_each_pay_the_fixed_part():
    cost = ComputeProfile(fixed_s=0.02, per_sample_s=0.002, memory_cap=8)
    timings = [Timed(size, cost.seconds(size), -(-size // 8)) for size in (4, 8, 24, 40)]
    line = fit_line(timings, [1.0] * 4)
    assert line.per_sample_s == pytest.approx(0.002, rel=0.02)
    assert line.fixed_samples == pytest.approx(10, rel=0.05)


def test_timings_of_one_size_scale_the_prior_as_a_whole():
    fit = ComputeFit(TRUE)
    for _ in range(10):
        fit.add(Timed(30, 3 * TRUE.seconds(30)))
    profile = fit.profile()
    assert profile.fixed_s == pytest.approx(3 * TRUE.fixed_s, rel=0.02)
    assert profile.per_sample_s == pytest.approx(3 * TRUE.per_sample_s, rel=0.02)


def test_without_a_prior_one_size_still_predicts_itself():
    fit = ComputeFit()
    assert fit.profile() is None
    fit.add(Timed(30, 0.3))
    assert fit.profile().seconds(30) == pytest.approx(0.3)
    assert 0.1 < fit.profile().seconds(15) < 0.3


def test_steps_without_samples_say_nothing():
    fit = ComputeFit(TRUE)
    fit.add(Timed(0, 0.5))
    assert fit.profile() == TRUE


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
@pytest.mark.parametrize("num_steps", [2, 4])
def test_a_machine_at_another_pace_is_seen_after_two_steps(factor, num_steps):
    generator = random.Random(2)
    fit = ComputeFit(TRUE)
    for _ in range(100):
        fit.add(noisy(TRUE, 40, generator))
    for _ in range(num_steps):
        fit.add(noisy(TRUE.slowed(factor), 40, generator))
    assert fit.profile().seconds(40) == pytest.approx(factor * TRUE.seconds(40), rel=0.06)
    assert fit.profile().seconds(20) == pytest.approx(factor * TRUE.seconds(20), rel=0.1)


def test_a_machine_that_is_a_little_slower_is_seen_after_four_steps_and_not_after_two():
    generator = random.Random(2)
    fit = ComputeFit(TRUE)
    for _ in range(100):
        fit.add(noisy(TRUE, 40, generator))
    for num_steps, factor in ((2, 1.0), (4, 1.6)):
        while len(fit._timings) < 96:
            fit.add(noisy(TRUE, 40, generator))
        after = fit.snapshot()
        for _ in range(num_steps):
            after.add(noisy(TRUE.slowed(1.6), 40, generator))
        assert after.profile().seconds(40) == pytest.approx(factor * TRUE.seconds(40), rel=0.06)


def test_it_follows_when_the_plan_answers_the_change():
    generator = random.Random(3)
    fit = ComputeFit(TRUE)
    now, samples = TRUE, 40
    for step in range(120):
        now = TRUE.slowed(3.0) if 40 <= step < 80 else TRUE
        samples = {0: 40, 45: 14, 85: 40}.get(step, samples)
        fit.add(noisy(now, samples, generator))
        if step in (39, 55, 79, 95, 119):
            assert fit.profile().seconds(samples) == pytest.approx(now.seconds(samples), rel=0.06), step


def test_on_a_steady_machine_the_fit_stands_still():
    generator = random.Random(4)
    fit = ComputeFit(TRUE)
    seen = []
    for step in range(500):
        fit.add(noisy(TRUE, 40, generator, spread=0.08))
        if step > 20:
            seen.append(fit.profile().seconds(40) / TRUE.seconds(40))
    assert 0.93 < min(seen) < max(seen) < 1.07


def test_a_trial_gives_a_line_with_its_error():
    generator = random.Random(5)
    trial = {size: [noisy(TRUE, size, generator, 0.05).seconds for _ in range(5)] for size in (1, 2, 4, 8, 16, 32)}
    profile = profile_from_trial(trial, memory_cap=16)
    assert profile.curve == ()
    assert profile.memory_cap == 16
    assert profile.seconds(10) == pytest.approx(TRUE.seconds(10), rel=0.06)
    assert 0 < profile.error < 0.1


def test_a_device_that_is_flat_until_it_is_full_gets_a_curve():
    flat = {size: [max(0.1, 0.01 * size)] for size in (1, 2, 4, 8, 16, 32, 64)}
    profile = profile_from_trial(flat)
    assert profile.curve
    for size, times in flat.items():
        assert profile.seconds(size) == pytest.approx(times[0], rel=0.01)
    assert profile.seconds(128) == pytest.approx(1.28, rel=0.05)


def test_a_curve_keeps_its_shape_at_another_pace():
    prior = profile_from_trial({size: [max(0.1, 0.01 * size)] for size in (1, 4, 16, 64)})
    fit = ComputeFit(prior)
    for _ in range(4):
        fit.add(Timed(16, 2 * prior.seconds(16)))
    assert fit.profile().seconds(64) == pytest.approx(2 * prior.seconds(64))


def test_a_pause_that_ends_does_not_make_samples_cheap():
    fit = ComputeFit()
    for samples in [20] * 10 + [1] * 10:
        fit.add(Timed(samples, 0.2 + 0.004 * samples))
    for _ in range(6):
        fit.add(Timed(1, 0.004))
    assert fit.profile().seconds(20) > 0.03
