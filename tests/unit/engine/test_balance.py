"""What every worker concludes for itself from the numbers of all, without a word between them."""

import pytest

from potluck.core.errors import PlanError
from potluck.engine.balance import Balance, Wishes
from potluck.engine.experience import Experience
from potluck.engine.roster import Member, Roster
from potluck.events.types import MachineBenched, PlanChanged, StepTiming
from potluck.measuring.profile_store import find_profile
from potluck.planning.costs import Exchange
from potluck.planning.rebalance import Told

SMALL, LARGE = Exchange(num_bytes=1000), Exchange(num_bytes=10_000_000)


def member(name, told=(), **more):
    return Member(name=f"{name}-0", machine=name, step=0, state_address="", model="", nccl="", **{
        "share": None, "told": told or Told.of(None, 0, 0.0), **more
    })  # fmt: skip


def costs(per_sample_s, wait_s=0.001):
    return Told(0.01, per_sample_s, 0.0, 0.02, wait_s)


@pytest.fixture
def make(tmp_path):
    def make(events, **wishes):
        experience = Experience(home=tmp_path, machine="bo", device="cpu", precision="no", model=None)
        return Balance(Wishes(**wishes), events.append, experience)

    return make


def test_all_conclude_the_same_and_the_fast_one_takes_more(make):
    told = [costs(0.001), costs(0.003)]
    plans = []
    for mine in range(2):
        events = []
        balance = make(events)
        roster = Roster((member("bo", told[0]), member("lily", told[1])), mine)
        balance.form(roster, 0, 64, SMALL)
        plans.append((balance.shares(roster), events))
    assert plans[0] == plans[1]
    assert sum(plans[0][0]) == 64
    assert plans[0][0][0] > 2 * plans[0][0][1]
    assert isinstance(plans[0][1][0], PlanChanged)


def test_a_newcomer_without_a_past_counts_as_an_average_one(make):
    balance = make([])
    roster = Roster((member("bo", costs(0.002)), member("lily")), 0)
    balance.form(roster, 3, 64, SMALL)
    assert balance.shares(roster) == [32, 32]


def test_parts_by_hand_are_not_changed(make):
    balance = make([])
    roster = Roster((member("bo", costs(0.001), share=3), member("lily", costs(0.003), share=1)), 0)
    balance.form(roster, 0, 64, SMALL)
    assert balance.shares(roster) == [3, 1]


def test_who_sends_more_than_it_computes_is_benched_after_several_looks(make):
    events = []
    balance = make(events)
    told = [costs(0.001, wait_s=1.0), costs(0.003, wait_s=1.0)]
    roster = Roster((member("bo", told[0]), member("lily", told[1])), 0)
    balance.form(roster, 0, 64, LARGE)
    step = 0
    while not balance.benched:
        balance.committed(roster, told, step, 64, LARGE)
        step += 1
        assert step < 60
    assert step > 12
    assert balance.benched == ("lily",)
    benched = [event for event in events if isinstance(event, MachineBenched)]
    assert [event.machine for event in benched] == ["lily"]
    assert benched[0].samples_per_s > benched[0].samples_per_s_with_it
    assert "--keep lily" in benched[0].reason


def test_whoever_is_to_be_kept_is_not_benched(make):
    balance = make([])
    told = [costs(0.001, wait_s=1.0), costs(0.003, wait_s=1.0)]
    roster = Roster((member("bo", told[0], keep=("lily", "away")), member("lily", told[1])), 0)
    balance.form(roster, 0, 64, LARGE)
    for step in range(60):
        balance.committed(roster, told, step, 64, LARGE)
    assert balance.benched == ()


def test_nobody_is_benched_for_a_few_milliseconds(make):
    balance = make([])
    told = [costs(0.0001, wait_s=0.05), costs(0.0003, wait_s=0.05)]
    roster = Roster((member("bo", told[0]), member("lily", told[1])), 0)
    balance.form(roster, 0, 64, LARGE)
    for step in range(60):
        balance.committed(roster, told, step, 64, LARGE)
    assert balance.benched == ()
    assert min(balance.shares(roster)) > 0


def test_distrust_ends_in_equal_parts(make):
    balance = make([])
    roster = Roster((member("bo", costs(0.001)), member("lily", costs(0.003))), 0)
    balance.form(roster, 0, 64, SMALL)
    balance.distrust()
    balance.form(roster, 1, 64, SMALL)
    assert balance.shares(roster) == [1, 1]


def test_what_a_run_showed_is_there_for_the_next(make, tmp_path):
    balance = make([])
    balance.recall("digest", 4000)
    for _ in range(30):
        balance.timed(20, 1, StepTiming(compute_s=0.05))
    balance.close()
    stored = find_profile(tmp_path, "bo", "cpu", "digest", "no")
    assert stored is not None
    assert stored.compute.seconds(20) == pytest.approx(0.05, rel=0.05)
    again = make([])
    again.recall("digest", 4000)
    assert again.numbers().profile is not None
    other_model = make([])
    other_model.recall("digest", 5000)
    assert other_model.numbers().profile is None


def test_what_did_not_fit_is_halved_and_remembered(make):
    balance = make([])
    balance.recall("digest", 4000)
    assert balance.out_of_memory(32) == 16
    again = make([])
    again.recall("digest", 4000)
    assert again.memory_cap == 16


def test_an_unknown_policy_is_refused():
    with pytest.raises(PlanError, match="dynamc"):
        Wishes(policy="dynamc")
