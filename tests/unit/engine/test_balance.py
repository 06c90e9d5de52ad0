"""What every worker concludes for itself from the numbers of all, without a word between them."""

import pytest

from potluck.core.errors import PlanError
from potluck.engine.balance import Balance, Wishes
from potluck.engine.experience import Experience
from potluck.engine.roster import Member, Roster
from potluck.events.state import replay
from potluck.events.types import MachineBenched, MachineUnbenched, PlanChanged, Record, StepTiming
from potluck.measuring.compute_fit import profile_from_trial
from potluck.measuring.profile_store import StoredProfile, find_profile, save_profile
from potluck.planning.costs import Exchange
from potluck.planning.rebalance import Told

SMALL, LARGE = Exchange(num_bytes=1000), Exchange(num_bytes=10_000_000)


def member(name, told=(), **more):
    return Member(name=f"{name}-0", machine=name, step=0, state_address="", model="", nccl="", **{
        "share": None, "told": (told or Told.of(None, 0, 0.0)).floats, **more
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


def test_a_benched_machine_that_has_become_fast_tells_that_it_is_back(make):
    events = []
    balance = make(events)
    told = [costs(0.001, wait_s=1.0), costs(0.003, wait_s=1.0)]
    roster = Roster((member("bo", told[0]), member("lily", told[1])), 1)
    balance.form(roster, 0, 64, LARGE)
    for step in range(60):
        if not balance.benched:
            balance.committed(roster, told, step, 64, LARGE)
    assert not balance.practised("lily-0", 32, 0.1)
    balance.unbenched("lily", 70, pays=False)
    back = [event for event in events if isinstance(event, MachineUnbenched)]
    assert [(event.machine, event.step) for event in back] == [("lily", 71)]
    assert replay([Record(sequence=n, time=0.0, event=event) for n, event in enumerate(events)]).benched == ()


def test_a_plan_that_stays_is_told_again_with_newer_numbers_and_is_no_change(make):
    events = []
    balance = make(events)
    roster = Roster((member("bo"), member("lily")), 0)
    balance.form(roster, 0, 64, SMALL)
    for step in range(200):
        pace = 1.0 if step < 5 else 1.02
        balance.committed(roster, [costs(0.001 * pace), costs(0.003 * pace)], step, 64, SMALL)
    plans = [event for event in events if isinstance(event, PlanChanged)]
    assert [plan.step for plan in plans] == [3, 13, 61, 109, 157]
    assert [bool(plan.reason) for plan in plans] == [True, False, False, False, False]
    assert plans[1].solo_samples_per_s["bo-0"] < plans[0].solo_samples_per_s["bo-0"]
    assert replay([Record(sequence=n, time=0.0, event=event) for n, event in enumerate(events)]).num_plan_changes == 0


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
    balance.keep()
    stored = find_profile(tmp_path, "bo", "cpu", "digest", "no")
    assert stored is not None
    assert stored.compute.seconds(20) == pytest.approx(0.05, rel=0.05)
    again = make([])
    again.recall("digest", 4000)
    assert again.introduction(20).profile is not None
    other_model = make([])
    other_model.recall("digest", 5000)
    assert other_model.introduction(20).profile is None


def test_of_a_kept_curve_a_group_is_told_what_it_is_near_a_usual_part(make, tmp_path):
    trial = {1: [0.02], 2: [0.021], 4: [0.024], 8: [0.03], 16: [0.035], 32: [0.1], 64: [0.3], 128: [0.64]}
    curve = profile_from_trial(trial)
    assert len(curve.curve) > 1
    save_profile(
        tmp_path,
        StoredProfile(machine="bo", device="cpu", model="digest", precision="no", compute=curve, gradient_bytes=4000),
    )
    balance = make([])
    balance.recall("digest", 4000)
    told = balance.introduction(64).profile
    assert [told.seconds(size) for size in (32, 128)] == pytest.approx([0.1, 0.64])


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


def test_a_machine_that_is_lost_knows_itself_when_it_comes_back(make, tmp_path, monkeypatch):
    monkeypatch.setattr("potluck.engine.balance._KEEP_EVERY_S", 0.0)
    balance = make([])
    balance.recall("digest", 4000)
    for _ in range(30):
        balance.timed(20, 1, StepTiming(compute_s=0.05))
    assert find_profile(tmp_path, "bo", "cpu", "digest", "no").compute.seconds(20) == pytest.approx(0.05, rel=0.05)


def test_a_full_disk_is_told_once_and_stops_nothing(make, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("potluck.engine.experience.save_profile", refuse)
    balance = make(events := [])
    balance.recall("digest", 4000)
    for _ in range(30):
        balance.timed(20, 1, StepTiming(compute_s=0.05))
    balance.keep()
    balance.keep()
    assert [event.text for event in events if "POTLUCK_HOME" in event.text] == [events[0].text]


def test_what_did_not_fit_stays_known_when_the_run_ends(make, tmp_path):
    balance = make([])
    balance.recall("digest", 4000)
    for _ in range(30):
        balance.timed(20, 1, StepTiming(compute_s=0.05))
    balance.out_of_memory(32)
    balance.keep()
    assert find_profile(tmp_path, "bo", "cpu", "digest", "no").compute.memory_cap == 16
