"""The parts of a step add up to it, whatever order they come in."""

import time

import pytest

from potluck.measuring.step_timer import StepTimer


def spend(timer, seconds, part):
    time.sleep(seconds)
    timer.lap(part)


def test_every_part_is_found_under_its_name_and_all_add_up():
    began_s, all_steps_s = time.perf_counter(), 0.0
    timer = StepTimer()
    for _ in range(2):
        inside_s = time.perf_counter()
        spend(timer, 0.01, "data_wait_s")
        time.sleep(0.02)
        timer.gradients_ready()
        spend(timer, 0.03, "exchange_wait_s")
        spend(timer, 0.005, "commit_s")
        least_s = time.perf_counter() - inside_s
        timing = timer.commit()
        slept = (timing.data_wait_s, timing.compute_s, timing.exchange_wait_s, timing.commit_s)
        assert all(seconds >= least for seconds, least in zip(slept, (0.01, 0.02, 0.03, 0.005), strict=True))
        assert max(least_s, sum(slept)) <= timing.step_s
        all_steps_s += timing.step_s
        assert all_steps_s <= time.perf_counter() - began_s


def test_a_spoiled_attempt_is_time_lost_to_a_fault():
    timer = StepTimer()
    spend(timer, 0.01, "compute_s")
    spend(timer, 0.01, "exchange_wait_s")
    timer.spoil()
    spend(timer, 0.005, "compute_s")
    timing = timer.commit()
    assert timing.retry_s >= 0.02
    assert timing.compute_s < timing.retry_s
    assert timing.exchange_wait_s == 0.0
    assert timer.commit().retry_s == 0.0


def test_time_outside_steps_belongs_to_none():
    timer = StepTimer()
    time.sleep(0.02)
    timer.restart()
    assert timer.commit().step_s < 0.02


def compute_is_what_the_device_took(device, work):
    """`work` puts something on the device's queue; the stand-in accelerator's tests call this, too."""
    import torch

    torch.accelerator.synchronize()
    timer = StepTimer(device)
    timer.computing()
    work()
    timer.gradients_ready()
    torch.accelerator.synchronize()
    timer.lap("exchange_wait_s")
    timing = timer.commit()
    assert timing.compute_s > 5 * timing.exchange_wait_s
    return timing


@pytest.mark.gpu
def test_on_an_accelerator_compute_is_what_the_device_took():
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        pytest.skip("this computer has no accelerator")
    matrix = torch.randn(4096, 4096, device=device)
    compute_is_what_the_device_took(device, lambda: [(matrix @ matrix).tanh() for _ in range(50)])


def test_processor_time_is_that_of_own_work_only():
    timer = StepTimer()
    began = time.process_time()
    while time.process_time() - began < 0.05:
        pass
    timer.lap("compute_s")
    began = time.process_time()
    while time.process_time() - began < 0.05:
        pass
    timer.lap("exchange_wait_s")
    time.sleep(0.05)
    timer.lap("rest_s")
    timer.commit()
    assert 0.045 < timer.cpu_s < 0.07
    timer.commit()
    assert timer.cpu_s < 0.01
