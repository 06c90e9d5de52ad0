"""One worker's own cost: measured in its steps, told to the others, kept for the next run."""

import pytest

from potluck.core.errors import PlanError
from potluck.engine.balance.balance import Balance, Wishes
from potluck.engine.balance.profile_memory import ProfileMemory
from potluck.events.types import PlanChanged, StepTiming
from potluck.measuring.compute_fit import profile_from_trial
from potluck.measuring.profile_store import StoredProfile, find_profile, newest_overhead_s, save_profile
from potluck.measuring.sources import make_cluster
from potluck.planning.costs import ComputeProfile, Exchange
from potluck.planning.replanning.cost_report import CostReport
from potluck.planning.replanning.setting import GroupSetting, WorkerIntroduction


@pytest.fixture
def make(tmp_path):
    def make(events, **wishes):
        memory = ProfileMemory(home=tmp_path, machine="bo", device="cpu", precision="no", model=None)
        return Balance(Wishes(**wishes), events.append, memory)

    return make


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
    assert again.own_cost().introduction(20).profile is not None
    other_model = make([])
    other_model.recall("digest", 5000)
    assert other_model.own_cost().introduction(20).profile is None


def test_a_machine_of_a_large_group_that_writes_no_plans_still_knows_them(tmp_path):
    memory = ProfileMemory(home=tmp_path, machine="m29", device="cpu", precision="no", model=None)
    written, shown = [], []
    balance = Balance(Wishes(), written.append, memory, shown.append)
    costs = [CostReport.of(ComputeProfile(fixed_s=0.01, per_sample_s=0.001), 4, 0.0)] * 30
    names = [(f"m{number:02d}-0", f"m{number:02d}") for number in range(30)]
    told = [WorkerIntroduction(cost=cost) for cost in costs]
    balance.formed(GroupSetting.of(names, told, 120, Exchange(num_bytes=4000, num_messages=1)), 0)
    assert written == []
    assert [len(event.shares) for event in shown if isinstance(event, PlanChanged)] == [30]


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
    told = balance.own_cost().introduction(64).profile
    assert [told.seconds(size) for size in (32, 128)] == pytest.approx([0.1, 0.64])


def test_what_did_not_fit_is_halved_and_remembered(make):
    balance = make([])
    balance.recall("digest", 4000)
    assert balance.kept.out_of_memory(32) == 16
    again = make([])
    again.recall("digest", 4000)
    assert again.memory_cap == 16


def test_an_unknown_policy_is_refused():
    with pytest.raises(PlanError, match="dynamc"):
        Wishes(policy="dynamc")


def test_a_machine_that_is_lost_knows_itself_when_it_comes_back(make, tmp_path, monkeypatch):
    """A short time, too: the first figures are kept after ten seconds, or once there are enough."""
    clock = [0.0]
    monkeypatch.setattr("potluck.engine.balance.kept_profile.time.monotonic", lambda: clock[0])
    balance = make([])
    balance.recall("digest", 4000)
    for _ in range(7):
        balance.timed(20, 1, StepTiming(compute_s=0.05))
        clock[0] += 2.0
    assert find_profile(tmp_path, "bo", "cpu", "digest", "no") is None  # not enough to go by
    balance.timed(20, 1, StepTiming(compute_s=0.05))
    assert find_profile(tmp_path, "bo", "cpu", "digest", "no").compute.seconds(20) == pytest.approx(0.05, rel=0.05)


def test_a_full_disk_is_told_once_and_stops_nothing(make, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("potluck.engine.balance.profile_memory.save_profile", refuse)
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
    balance.kept.out_of_memory(32)
    balance.keep()
    assert find_profile(tmp_path, "bo", "cpu", "digest", "no").compute.memory_cap == 16


def test_how_much_longer_work_takes_without_the_pauses_of_a_ring_is_kept_for_plans(make, tmp_path, monkeypatch):
    monkeypatch.setattr("potluck.engine.balance.worker_cost.quota_cores", lambda: 0.5)
    balance = make([])
    balance.recall("digest", 4000)
    for _ in range(30):
        balance.timed(20, 1, StepTiming(compute_s=0.05, exchange_wait_s=0.05), cpu_s=0.04)
    balance.keep()
    stored = find_profile(tmp_path, "bo", "cpu", "digest", "no")
    assert stored.stretch == pytest.approx(1.6)
    (worker,) = make_cluster([stored]).workers
    assert worker.stretch == worker.least_factor == pytest.approx(1.6)


def test_what_steps_take_beside_their_work_is_kept_for_trials_of_other_models(make, tmp_path):
    balance = make([])
    balance.recall("digest", 4000)
    for _ in range(30):
        balance.timed(20, 1, StepTiming(compute_s=0.05, commit_s=0.004, rest_s=0.002, exchange_wait_s=0.01))
    assert newest_overhead_s(tmp_path, "bo") is None
    balance.keep()
    assert newest_overhead_s(tmp_path, "bo") == pytest.approx(0.006)
