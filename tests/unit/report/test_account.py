"""Accounts: every second has a name and a machine, and efficiency and losses add up to one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.run_folder import RunFolder
from potluck.events.log import EventLog
from potluck.events.types import MachineBenched, PlanChanged, Record, RunStarted, StepCommitted, StepTiming
from potluck.report.account import CAUSES
from potluck.report.account_file import make_account, read_account

SOLO = {"rosa": 100.0, "lily": 50.0}


def records(worker, *events):
    started = RunStarted(
        run="r", machine=worker, worker=0, process_id=1, device="cpu", mixed_precision="no", versions={}
    )
    return [Record(sequence=n, time=float(n), event=event) for n, event in enumerate((started, *events))]


def plan(step=1, **more):
    values = {"policy": "dynamic", "shares": {"rosa": 20, "lily": 10}, "reason": "it pays", "step_s": 0.25}
    return PlanChanged(step=step, samples_per_s=120.0, error=0.05, **{**values, "solo_samples_per_s": SOLO, **more})


def step(number, own, **timing):
    parts = StepTiming(**timing)
    return StepCommitted(
        step=number, epoch=0, samples=30, own_samples=own, loss=1.0, seconds=parts.step_s, timing=parts
    )


def two_workers(rosa, lily, num_steps=4):
    return make_account(
        {
            "rosa": records("rosa", plan(), *(step(n, 20, **rosa) for n in range(1, num_steps + 1))),
            "lily": records("lily", plan(), *(step(n, 10, **lily) for n in range(1, num_steps + 1))),
        }
    )


EVEN = {"compute_s": 0.2, "exchange_wait_s": 0.05, "commit_s": 0.01, "rest_s": 0.0, "data_wait_s": 0.0}


def test_a_perfect_run_loses_nothing():
    account = two_workers({"compute_s": 0.2}, {"compute_s": 0.2})
    assert account.samples_per_s == pytest.approx(150.0)
    assert account.efficiency == pytest.approx(1.0)
    assert sum(abs(loss.part) for loss in account.losses) == pytest.approx(0.0)


seconds = st.floats(0.0, 0.5)
timings = st.fixed_dictionaries(dict.fromkeys(("data_wait_s", "commit_s", "rest_s", "retry_s"), seconds))


@given(timings, timings, st.floats(0.01, 0.5), st.floats(0.01, 0.5), st.floats(0.0, 0.2))
def test_efficiency_and_losses_add_up_to_one(rosa, lily, rosa_s, lily_s, wire_s):
    rosa, lily = {**rosa, "compute_s": rosa_s}, {**lily, "compute_s": lily_s}
    longest_s = max(sum(rosa.values()), sum(lily.values()))
    rosa["exchange_wait_s"] = longest_s - sum(rosa.values()) + wire_s
    lily["exchange_wait_s"] = longest_s - sum(lily.values()) + wire_s
    account = two_workers(rosa, lily)
    assert account.efficiency + sum(loss.part for loss in account.losses) == pytest.approx(1.0)
    assert account.accounted_s == pytest.approx(account.wall_s)
    assert sum(account.by_cause().values()) == pytest.approx(1 - account.efficiency)
    assert {loss.cause for loss in account.losses} <= set(CAUSES)


@pytest.mark.parametrize("part", ["data_wait_s", "compute_s", "rest_s", "commit_s", "retry_s"])
def test_a_delay_and_the_waits_for_it_are_booked_under_its_name_on_its_machine(part):
    slow = {**EVEN, part: EVEN.get(part, 0.0) + 0.2}
    account = two_workers(rosa={**EVEN, "exchange_wait_s": EVEN["exchange_wait_s"] + 0.2}, lily=slow)
    largest = account.losses[0]
    assert (largest.cause, largest.machine) == (part.removesuffix("_s"), "lily")
    own_s = 0.2 if part == "compute_s" else slow[part]
    assert largest.seconds == pytest.approx(4 * own_s)
    assert largest.waited_s == pytest.approx(0.8)
    assert largest.part == pytest.approx((4 * own_s * 50 + 0.8 * 100) / (150 * account.wall_s))
    assert account.step_parts_s["rosa"]["straggler_wait"] == pytest.approx(0.2)


def test_a_slow_link_is_exchange_for_everybody_and_nobodys_wait():
    slow = {**EVEN, "exchange_wait_s": 0.25}
    account = two_workers(slow, slow)
    assert [loss.cause for loss in account.losses[:2]] == ["exposed_exchange"] * 2
    assert not [loss for loss in account.losses if loss.waited_s]


def test_a_machine_whose_link_is_known_to_be_the_slowest_has_the_exchange_of_all():
    slow = {**EVEN, "exchange_wait_s": 0.25}
    lines = {name: [step(1, own, **slow)] for name, own in (("rosa", 20), ("lily", 10))}
    account = make_account({name: records(name, plan(slowest_link="lily"), *lines[name]) for name in lines})
    (loss,) = (one for one in account.losses if one.cause == "exposed_exchange")
    assert (loss.machine, loss.seconds, loss.waited_s) == ("lily", pytest.approx(0.25), pytest.approx(0.25))
    assert loss.part == pytest.approx(0.25 / account.wall_s)


def test_who_is_faster_here_than_its_solo_speed_says_is_that_fast_alone():
    """A speed that was learnt from steps with waits for data holds these waits."""
    account = two_workers({**EVEN, "exchange_wait_s": 0.35}, {**EVEN, "compute_s": 0.1, "data_wait_s": 0.4})
    assert account.solo_samples_per_s == pytest.approx({"rosa": 100.0, "lily": 100.0})
    assert account.losses[0].cause == "data_wait"
    assert account.efficiency + sum(loss.part for loss in account.losses) == pytest.approx(1.0)


def test_predicted_stands_against_measured():
    account = two_workers(EVEN, EVEN)
    assert account.predicted_samples_per_s == pytest.approx(120.0)
    assert account.prediction_error == pytest.approx(120 / (30 / 0.26) - 1)


def test_the_plan_in_force_counts_and_the_first_is_no_change():
    told_again = plan(2, step_s=0.5, reason="")
    lines = [plan(), step(1, 30, compute_s=0.3), told_again, step(2, 30, compute_s=0.3)]
    assert make_account({"rosa": records("rosa", *lines)}).num_plan_changes == 0
    other = plan(3, step_s=0.5, shares={"rosa": 30, "lily": 0})
    lines = [plan(), step(1, 30, compute_s=0.3), other, step(3, 30, compute_s=0.3)]
    account = make_account({"rosa": records("rosa", *lines)})
    assert account.num_plan_changes == 1
    assert account.predicted_samples_per_s == pytest.approx(60 / 0.75)


def test_a_benched_machine_is_named_and_not_in_the_sum():
    why = MachineBenched(step=1, machine="fern", reason="its link", samples_per_s=2.0, samples_per_s_with_it=1.0)
    account = make_account({"rosa": records("rosa", plan(), why, step(1, 30, compute_s=0.3)), "fern": records("fern")})
    assert account.benched == {"fern": "its link"}
    assert account.solo_samples_per_s == pytest.approx({"rosa": 100.0})


@pytest.mark.parametrize("order", [("rosa", "lily"), ("lily", "rosa")])
def test_a_plan_with_a_share_for_a_benched_machine_ends_the_bench_whoever_is_read_first(order):
    why = MachineBenched(step=1, machine="fern", reason="its link", samples_per_s=2.0, samples_per_s_with_it=1.0)
    with_fern = plan(step=2, shares={"rosa": 10, "lily": 10, "fern": 10}, reason="the workers changed")
    lines = {"rosa": [why, step(1, 20, **EVEN), with_fern], "lily": [why, step(1, 10, **EVEN)]}  # lily left
    told = {name: records(name, plan(), *lines[name]) for name in order}
    assert make_account(told).benched == {}


def test_steps_with_a_missing_file_do_not_count():
    assert make_account({"rosa": records("rosa", plan(), step(1, 20, **EVEN))}) is None
    assert make_account({"rosa": records("rosa")}) is None


def test_without_a_plan_there_is_no_efficiency_but_still_the_seconds():
    account = make_account({"rosa": records("rosa", step(1, 30, compute_s=0.2, data_wait_s=0.1))})
    assert account.efficiency is None
    assert [(loss.cause, loss.seconds) for loss in account.losses if loss.seconds] == [("data_wait", 0.1)]


def test_as_data_it_is_json():
    data = json.loads(json.dumps(two_workers(EVEN, EVEN).as_data(), allow_nan=False))
    assert data["efficiency"] + sum(data["lost_by_cause"].values()) == pytest.approx(1.0)
    assert data["losses"][0]["machine"] in SOLO


def test_a_run_is_accounted_for_from_its_folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    for name, own in (("rosa", 20), ("lily", 10)):
        log = EventLog(folder.event_file(name, 0))
        for event in (plan(solo_samples_per_s={"rosa-0": 100.0, "lily-0": 50.0}), step(1, own, **EVEN)):
            log.append(event)
        log.close()
    account = read_account(folder)
    assert account.num_steps == 1
    assert account.efficiency == pytest.approx(30 / 0.26 / 150)
