"""What every worker concludes for itself from the numbers of all: a frozen value stepped through, without files."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.events.state import replay
from potluck.events.types import MachineBenched, MachineUnbenched, PlanChanged, Record
from potluck.measuring.compute_fit import profile_from_trial
from potluck.planning.bench_rule import BenchTerms, least_gain_after
from potluck.planning.costs import ComputeProfile, Exchange, LinkProfile
from potluck.planning.measured_exchange import RingMeasurement
from potluck.planning.replanning.bench_votes import vote
from potluck.planning.replanning.cost_report import UNKNOWN_COST, CostReport
from potluck.planning.replanning.proposal import propose
from potluck.planning.replanning.replanner import Replanner
from potluck.planning.replanning.returning import FasterWith, consider_return, heir_of, machine_returns
from potluck.planning.replanning.schedule import PlanCheck, check_after
from potluck.planning.replanning.setting import GroupSetting, WorkerIntroduction

SMALL, LARGE = Exchange(num_bytes=1000), Exchange(num_bytes=10_000_000)
PAIR = (("bo-0", "bo"), ("lily-0", "lily"))
NAMES = ("bo-0", "lily-0")


def cost(per_sample_s, wait_s=0.001, fixed_s=0.01, spread=0.0):
    return CostReport(fixed_s, per_sample_s, 0.0, 0.02, wait_s, spread=spread)


def pair(*costs, **more):
    return GroupSetting(**{"workers": PAIR, "costs": costs, "batch": 64, "exchange": SMALL, **more})


def run(setting, num_steps, costs=None, replanner=None):
    """Form the group and commit steps until a machine is benched; the last Replanner, all events, the steps done."""
    replanner, events = (replanner or Replanner()).formed(setting, 0)
    step = 0
    while step < num_steps and not replanner.benched:
        replanner, more = replanner.committed(setting.costs if costs is None else costs(step), step)
        events += more
        step += 1
    return replanner, events, step


def replayed(events):
    return replay([Record(sequence=n, time=0.0, event=event) for n, event in enumerate(events)])


def of_kind(kind, events):
    return [event for event in events if isinstance(event, kind)]


# Laws

REPORTS = st.builds(
    cost,
    st.floats(1e-4, 1e-2),
    wait_s=st.floats(1e-4, 1.0),
    fixed_s=st.floats(0.0, 0.05),
)


@st.composite
def groups(draw):
    """A group of two to four machines, and the costs that come with each of its commits."""
    num = draw(st.integers(2, 4))
    reports = st.lists(REPORTS, min_size=num, max_size=num)
    setting = GroupSetting(
        workers=tuple((f"{name}-0", name) for name in "abcd"[:num]),
        costs=tuple(draw(st.lists(st.one_of(REPORTS, st.just(UNKNOWN_COST)), min_size=num, max_size=num))),
        batch=draw(st.integers(num, 128)),
        exchange=draw(st.sampled_from([SMALL, LARGE])),
        keep=draw(st.sampled_from([frozenset(), frozenset("a"), frozenset("b")])),
        last_step=draw(st.sampled_from([None, 10, 100_000])),
        num_returns=draw(st.integers(0, 2)),
    )
    paces = draw(st.lists(reports, min_size=1, max_size=3))
    return setting, [paces[index * len(paces) // 40] for index in range(40)]


@settings(max_examples=25)
@given(groups())
def test_workers_that_get_the_same_numbers_come_to_the_same_plan_and_no_sample_is_lost(case):
    setting, costs = case
    one, events = Replanner().formed(setting, 0)
    other, same_events = Replanner().formed(setting, 0)
    for step, reports in enumerate(costs):
        travelled = [CostReport.read(report.floats) for report in reports]
        one, more = one.committed(reports, step)
        other, same_more = other.committed(travelled, step)
        events, same_events = events + more, same_events + same_more
        assert one == other
        shares = one.shares(setting.names)
        assert len(shares) == len(setting.workers)
        assert one.plan is None or sum(shares) == setting.batch
        assert not setting.keep.intersection(one.benched)
        if one.benched:
            break
    assert events == same_events


@settings(max_examples=25)
@given(groups(), st.integers(1, 39))
def test_a_group_that_forms_anew_forgets_what_was_counted_in_the_one_before(case, num_steps):
    setting, costs = case
    used, _ = Replanner().formed(setting, 0)
    for step, reports in enumerate(costs[:num_steps]):
        used, _ = used.committed(reports, step)
    anew, events = used.formed(setting, 7)
    fresh, fresh_events = Replanner().formed(setting, 7)
    assert replace(anew, largest_ring=None, has_advised=False) == replace(fresh, largest_ring=None, has_advised=False)
    assert [event for event in events if event not in fresh_events] == []  # advice is given once a run


@given(st.integers(0, 10_000))
def test_some_check_is_never_far(num_commits):
    assert any(check_after(num_commits + ahead) for ahead in range(4))


@given(st.integers(9, 10_000), st.floats(0.001, 0.1))
def test_checks_of_short_steps_are_tenths_of_a_second_apart(num_commits, step_s):
    every = min(16, max(4, int(0.4 / step_s)))
    assert sum(check_after(num_commits + ahead, step_s=step_s) is not None for ahead in range(every)) == 1


@given(st.integers(3, 10_000))
def test_where_steps_are_long_every_commit_is_looked_at_and_most_of_them_only_for_an_urgent_gain(num_commits):
    looks = [check_after(num_commits + ahead, step_s=0.5) for ahead in range(16)]
    assert all(looks)
    assert sum(not look.is_urgent_only for look in looks) <= 6
    assert not all(check_after(num_commits + ahead, step_s=0.5, num_workers=1000) for ahead in range(16))


def test_a_look_for_an_urgent_gain_leaves_no_trace_if_there_is_none():
    """Else small gains of many looks would add up faster where steps are long, and plans change for less."""
    slow = (cost(0.02), cost(0.04))
    replanner, _, _ = run(pair(*slow), 101)
    little, much = (cost(0.026), cost(0.04)), (cost(0.06), cost(0.04))
    after, events = replanner.committed(little, 101)
    assert events == []
    assert after == replace(replanner, num_commits=102, num_since_change=replanner.num_since_change + 1)
    after, events = replanner.committed(much, 101)
    assert [event.reason for event in of_kind(PlanChanged, events)] != []
    assert after.num_since_change == 0


def test_an_urgent_look_shifts_samples_also_where_the_best_plan_would_bench_a_machine():
    """Benching has its own votes; until then a machine that has become slow must not hold up the others."""
    three = GroupSetting(
        workers=(("a-0", "a"), ("b-0", "b"), ("c-0", "c")),
        costs=(cost(0.02), cost(0.02), cost(0.02)),
        batch=64,
        exchange=SMALL,
    )
    replanner, _, _ = run(three, 101)
    slow = (cost(0.02), cost(0.02), cost(0.02, fixed_s=0.45))
    after, _ = replanner.committed(slow, 101)
    assert after.benched == ()
    assert after.shares(three.names)[2] < replanner.shares(three.names)[2]


def test_a_machine_whose_quota_has_just_become_smaller_is_not_benched_for_it():
    """Its newest work is that of the smaller quota already: its stretch, still from older steps, would count twice."""
    before = (cost(0.002), cost(0.004))
    after = (cost(0.006)._replace(stretch=3.0), cost(0.004))
    replanner, _, _ = run(pair(*before), 60)
    for step in range(60, 80):
        replanner, _ = replanner.committed(after, step)
    assert replanner.benched == ()


@pytest.mark.parametrize("slows_at", [None, 5, 100])
def test_a_plan_that_stays_is_told_again_with_newer_numbers_and_is_no_change(slows_at):
    """Never out of date for long, and no flood, whatever the steps between two checks."""
    paces = [1.0 if slows_at is None or step < slows_at else 1.02 + step / 10_000 for step in range(400)]
    _, events, _ = run(
        pair(UNKNOWN_COST, UNKNOWN_COST), 400, lambda step: [cost(0.001 * paces[step]), cost(0.003 * paces[step])]
    )
    first, *again = of_kind(PlanChanged, events)
    assert first.reason
    assert again
    for before, plan in pairwise([first, *again]):
        assert not plan.reason
        assert plan.shares == first.shares
        assert 10 <= plan.step - before.step <= 60
        assert plan.solo_samples_per_s["bo-0"] == pytest.approx(64 / (0.01 + 64 * 0.001 * paces[plan.step - 1]))
    assert 400 - again[-1].step <= 60
    assert replayed(events).num_plan_changes == 0


# What a group puts together from its workers' words


def test_what_workers_told_is_put_together_the_same_way_by_all():
    ring = RingMeasurement(machines=("bo", "lily"), work_s=0.1, exposed_s=0.2)
    bo = WorkerIntroduction(cost=cost(0.001), keep=("lily", "away"), last_step=90, num_returns=2, kept_ring=ring)
    lily = WorkerIntroduction(
        cost=cost(0.003),
        policy="static",
        link=LinkProfile(latency_s=1e-4, bandwidth_bytes_per_s=1e8, error=0.2),
        re_forming_s=3.0,
        kept_ring=replace(ring, work_s=0.15),
    )
    setting = GroupSetting.of(PAIR, [bo, lily], 64, SMALL)
    assert setting == pair(
        cost(0.001),
        cost(0.003),
        links={"lily": LinkProfile(latency_s=1e-4, bandwidth_bytes_per_s=1e8)},
        keep=frozenset({"lily"}),
        last_step=90,
        re_forming_s=3.0,
        num_returns=2,
        kept_ring=replace(ring, work_s=0.15),
        factors=(1.0, 1.0),
    )
    assert GroupSetting.of(PAIR, [bo, replace(lily, kept_ring=None)], 64, SMALL).kept_ring is None
    assert GroupSetting.of(PAIR, [replace(bo, share=3), lily], 64, SMALL).fixed_shares == (3, 1)


# The first plan


def test_the_fast_machine_takes_more():
    replanner, events = Replanner().formed(pair(cost(0.001), cost(0.003)), 0)
    shares = replanner.shares(NAMES)
    assert sum(shares) == 64
    assert shares[0] > 2 * shares[1]
    assert isinstance(events[0], PlanChanged)


def test_a_newcomer_without_a_past_counts_as_an_average_one():
    replanner, _ = Replanner().formed(pair(cost(0.002), UNKNOWN_COST), 3)
    assert replanner.shares(NAMES) == (32, 32)


def steps_until_a_change(slower, spread=0.0):
    """Steps after a long steady time until the plan follows a machine that is slower by this factor from then on."""
    replanner, _, _ = run(pair(cost(0.001, spread=spread), cost(0.002, spread=spread)), 100)
    for step in range(100, 300):
        costs = (cost(0.001 * slower, spread=spread), cost(0.002, spread=spread))
        replanner, events = replanner.committed(costs, step)
        if any(event.reason for event in of_kind(PlanChanged, events)):
            return step - 100
    return None


def test_a_small_gain_must_last_longer_than_a_large_one_and_a_passing_one_changes_nothing():
    """Gains of about 6 %, 10 % and 40 % of a step."""
    little, more, much = (steps_until_a_change(slower) for slower in (1.2, 1.35, 3.0))
    assert little > 1.5 * more
    assert more > 8 > much
    replanner, _, _ = run(pair(cost(0.001), cost(0.002)), 100)
    for step in range(100, 200):  # slower in four of every eight checks
        now = 0.00135 if step // 8 % 2 else 0.001
        replanner, events = replanner.committed((cost(now), cost(0.002)), step)
        assert not [event for event in of_kind(PlanChanged, events) if event.reason]


def test_where_steps_vary_much_a_gain_must_last_longer_unless_it_is_large():
    """Machines that people use: what one pace of many steps seems to save is often gone with the next."""
    assert steps_until_a_change(1.6, spread=0.06) == steps_until_a_change(1.6)
    assert steps_until_a_change(1.6, spread=0.12) > 2 * steps_until_a_change(1.6)
    assert steps_until_a_change(3.0, spread=0.12) == steps_until_a_change(3.0)
    assert PlanCheck(0.05, 0.2).evidence_among(0.5) == PlanCheck(0.05, 0.2).evidence_among(0.12) == 0.4


def changes_after_forming(formed_after, slower):
    """How many of a group's first twelve commits change the plan; `slower`: of one machine, by the commit's number."""
    replanner, _ = Replanner().formed(pair(cost(0.001), cost(0.002)), formed_after)
    num_changes = 0
    for number in range(12):
        costs = (cost(0.001 * slower(number)), cost(0.002))
        replanner, events = replanner.committed(costs, formed_after + number)
        num_changes += any(event.reason for event in of_kind(PlanChanged, events))
    return num_changes


def test_in_a_run_that_is_under_way_a_small_gain_after_a_change_of_the_group_must_last():
    """A machine that comes back disturbs the others for some steps, and all know their costs already."""

    def for_a_moment(number):
        return 1.25 if number >= 7 else 1.0

    assert changes_after_forming(0, for_a_moment) == 1
    assert changes_after_forming(200, for_a_moment) == 0
    assert changes_after_forming(0, lambda _: 1.25) == changes_after_forming(200, lambda _: 1.25) == 1


def test_nobody_plans_before_all_costs_are_known():
    replanner, events = Replanner().formed(pair(UNKNOWN_COST, UNKNOWN_COST), 0)
    assert (replanner.plan, events) == (None, [])
    assert replanner.shares(NAMES) == (1, 1)


def test_shares_by_hand_are_not_changed():
    setting = pair(cost(0.001), cost(0.003), fixed_shares=(3, 1))
    replanner, events, _ = run(setting, 20)
    assert replanner.shares(NAMES) == (3, 1)
    assert not events


def test_of_other_workers_a_plan_says_nothing():
    replanner, _ = Replanner().formed(pair(cost(0.001), cost(0.003)), 0)
    assert replanner.shares(["bo-0"]) == (1,)


def test_distrust_ends_in_equal_shares():
    setting = pair(cost(0.001), cost(0.003))
    replanner, _ = Replanner().formed(setting, 0)
    replanner, events, _ = run(setting, 20, replanner=replanner.distrusted())
    assert replanner.shares(NAMES) == (1, 1)
    assert not events


def test_a_curve_travels_as_it_is_where_the_worker_is():
    curve = profile_from_trial({size: [max(0.1, 0.01 * size)] for size in (1, 2, 4, 8, 16, 32, 64)})
    assert curve.curve
    told = CostReport.of(curve, 40, 0.0)
    assert told.profile.seconds(40) == pytest.approx(0.4, rel=0.01)
    assert told.profile.seconds(30) == pytest.approx(0.3, rel=0.05)
    assert CostReport.read(told.floats) == told


# Who is benched


def test_who_sends_more_than_it_computes_is_benched_after_several_checks():
    replanner, events, step = run(pair(cost(0.001, wait_s=1.0), cost(0.003, wait_s=1.0), exchange=LARGE), 60)
    assert 6 < step <= 12
    assert replanner.benched == ("lily",)
    (benched,) = of_kind(MachineBenched, events)
    assert benched.machine == "lily"
    assert benched.samples_per_s > benched.samples_per_s_with_it
    assert "--keep lily" in benched.reason


@pytest.mark.parametrize(("wait_s", "is_benched"), [(0.006, False), (0.02, True)])
def test_a_machine_that_has_become_slower_is_benched_only_where_other_shares_do_not_do_as_well(wait_s, is_benched):
    """Most of what a plan without it saves is often saved by giving it less."""
    slower = (cost(0.001, wait_s), cost(0.02, wait_s))
    before, _ = Replanner().formed(pair(cost(0.001, wait_s), cost(0.01, wait_s)), 0)
    setting = pair(*slower, keep=frozenset({"bo"}))
    proposal = propose(setting, slower, before.plan)
    assert proposal.plan.benched == ("lily",)
    assert proposal.gain > 0.3
    benching = vote(setting, 50, before.plan, proposal, num_commits=50, streak=4)
    assert (benching.proposal is not None) == is_benched


def test_whoever_is_to_be_kept_is_not_benched():
    setting = pair(cost(0.001, wait_s=1.0), cost(0.003, wait_s=1.0), exchange=LARGE, keep=frozenset({"lily"}))
    assert run(setting, 60)[0].benched == ()


def num_steps_to_bench(unit_s, last_step, gain=5):
    """Steps until a machine is benched whose ring takes several of these units where one machine alone takes one."""
    costs = [cost(factor * unit_s / 64, wait_s=gain * unit_s, fixed_s=0.0) for factor in (1, 3)]
    replanner, _, step = run(pair(*costs, exchange=LARGE, last_step=last_step), 60)
    return step if replanner.benched else None


@pytest.mark.parametrize("unit_s", [0.0005, 0.005, 0.05, 0.5, 5.0])
def test_the_length_of_a_step_does_not_decide_who_is_benched(unit_s):
    assert num_steps_to_bench(unit_s, 100_000) == num_steps_to_bench(1.0, 100_000) <= 12


def test_a_close_case_needs_more_checks_than_a_clear_one():
    assert num_steps_to_bench(1.0, 100_000, gain=0.4) > num_steps_to_bench(1.0, 100_000) + 8


def test_one_check_in_between_that_wants_all_machines_begins_the_count_anew():
    costs = [cost(factor / 64, wait_s=0.4, fixed_s=0.0) for factor in (1, 3)]
    alone = [numbers._replace(exchange_wait_s=0.001) for numbers in costs]
    setting = pair(*costs, exchange=LARGE)
    steady, interrupted = (run(setting, 80, lambda step, at=at: alone if step == at else costs)[2] for at in (-1, 16))
    assert steady < interrupted <= 40


def test_nobody_is_benched_where_the_rest_of_the_run_is_too_short():
    assert num_steps_to_bench(0.005, last_step=12) is None  # 0.1 s at most could be saved
    assert num_steps_to_bench(0.05, last_step=12) is not None


def test_who_came_back_is_not_benched_for_little():
    costs = [cost(0.001, wait_s=0.02, fixed_s=0.0), cost(0.002, wait_s=0.02, fixed_s=0.0)]
    assert run(pair(*costs, exchange=LARGE, num_returns=3), 80)[0].benched == ()


def test_the_fastest_machine_is_tried_alone_where_it_may_be_as_fast_as_all():
    """In a ring the same processor also sends and encrypts: only a try shows what a machine does without."""
    costs = [cost(each, wait_s=0.019, fixed_s=0.0) for each in (0.001, 0.002)]  # 43 + 19 ms together, 64 ms alone
    replanner, events, _ = run(pair(*costs, exchange=LARGE), 80)
    assert replanner.benched == ("lily",)
    (benched,) = of_kind(MachineBenched, events)
    assert "shows how fast it is alone" in benched.reason
    # It was slower alone than both were together: lily comes back.
    own = ComputeProfile(fixed_s=0.0, per_sample_s=0.043 / 21)
    terms = BenchTerms(steps_left=99_920, re_forming_s=1.6)
    assert not comes_back(replanner, own, terms, others_s=0.060)
    assert comes_back(replanner, own, terms, others_s=0.068)
    assert not comes_back(replanner, own, replace(terms, steps_left=100), others_s=0.068)


# Who comes back


def comes_back(replanner, own, terms, others_s=None):
    return consider_return(replanner.in_force, terms, worker="lily-0", cost=own, stretch=1.0, others_s=others_s)


@pytest.mark.parametrize(("per_sample_s", "is_fast"), [(0.1, False), (0.001, True)])
def test_a_benched_machine_that_has_become_fast_comes_back_and_one_that_is_still_slow_does_not(per_sample_s, is_fast):
    replanner, events, step = run(pair(cost(0.001, wait_s=0.01), cost(0.1, wait_s=0.01)), 60)
    assert replanner.benched == replayed(events).benched == ("lily",)
    assert heir_of(replanner.in_force) == "lily"
    gain = comes_back(replanner, ComputeProfile(fixed_s=0.0, per_sample_s=per_sample_s), BenchTerms())
    assert (gain is not None) is is_fast
    if gain is not None:
        events += machine_returns("lily", step, gain)
        (back,) = of_kind(MachineUnbenched, events)
        assert (back.machine, back.step) == ("lily", step + 1)
        then_ms, now_ms = map(int, re.findall(r"(\d+) ms", back.reason))
        assert 43 <= then_ms < now_ms == 74  # alone, bo takes 10 + 64 ms
        assert replayed(events).benched == ()


def test_a_machine_that_would_be_much_faster_alone_than_the_one_that_trains_comes_back():
    replanner, _, _ = run(pair(cost(0.001, wait_s=1.0), cost(0.0011, wait_s=1.0), exchange=LARGE), 60)
    assert replanner.benched == ("lily",)
    own = ComputeProfile(fixed_s=0.0, per_sample_s=0.035 / 32)
    assert not comes_back(replanner, own, BenchTerms(), others_s=0.074)
    assert comes_back(replanner, own, BenchTerms(), others_s=0.2)


def test_who_came_back_often_must_gain_more():
    replanner, _, _ = run(pair(cost(0.001, wait_s=0.01), cost(0.1, wait_s=0.01)), 60)
    own = ComputeProfile(fixed_s=0.0, per_sample_s=0.001)
    assert comes_back(replanner, own, BenchTerms())
    assert not comes_back(replanner, own, BenchTerms(least_gain=least_gain_after(5)))


def test_a_benched_machine_takes_part_again_when_the_others_are_gone():
    (back, notice) = machine_returns("lily", 70, None)
    assert (back.machine, back.step, back.reason) == ("lily", 71, "the others are gone")
    assert notice.text == "lily takes part again: the others are gone"
    assert machine_returns("lily", 70, FasterWith(0.2, 0.1))[0].reason != back.reason


def test_a_round_is_followed_by_a_check_whose_plan_holds_at_once_for_a_gain_of_some_percent():
    replanner, _ = Replanner().formed(pair(UNKNOWN_COST, UNKNOWN_COST), 0)
    for step in range(12):
        replanner, _ = replanner.committed([cost(0.001), cost(0.003)], step)
    before = replanner.shares(replanner.setting.names)
    drifted = [cost(0.001), cost(0.0032)]
    assert replanner.committed(drifted, 12)[0].shares(replanner.setting.names) == before
    assert replanner.checks_next(of_round=True)
    replanner, (told, *_) = replanner.committed(drifted, 12, of_round=True)
    assert replanner.shares(replanner.setting.names) != before
    assert told.reason == "a step should be 4 % shorter"
