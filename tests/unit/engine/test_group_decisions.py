"""Pure decisions of a group: the split, the backend, the patience, the check that parts add up."""

import math
from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import GroupError, SettingsError
from potluck.engine.group.addresses import address_towards, host_and_port
from potluck.engine.group.attempt import NextStep, StepAttempt, next_step
from potluck.engine.group.backend import check_backend
from potluck.engine.group.gradients import Contribution, GradientSums, are_whole
from potluck.engine.group.protocol import Announcement
from potluck.engine.group.roster import Member, Roster, StateDigest, group_change
from potluck.engine.group.timeouts import StepTimeout
from potluck.engine.order.position import Slice
from potluck.events.progress_lines import group_lines
from potluck.planning.costs import bucket_bytes
from potluck.planning.replanning.setting import WorkerIntroduction
from potluck.planning.split import slice_of, split_by_shares


@given(batch=st.integers(0, 500), shares=st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_parts_cover_the_batch_in_order(batch, shares):
    parts = split_by_shares(batch, shares)
    assert [index for part in parts for index in part] == list(range(batch))
    if any(shares):
        exact = [batch * share / sum(shares) for share in shares]
        assert all(abs(len(part) - size) < 1 for part, size in zip(parts, exact, strict=True))
        assert all(len(part) == 0 for part, share in zip(parts, shares, strict=True) if share == 0)


@given(st.integers(0, 500), st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=8))
def test_slices_of_those_who_take_part_cover_the_batch_in_order(batch, workers):
    shares, takers = [share for share, _ in workers], [index for index, (_, takes) in enumerate(workers) if takes]
    slices = [slice_of(worker, batch, shares, takers) for worker in range(len(workers))]
    assert [sample for each in slices for sample in each] == (list(range(batch)) if takers else [])
    assert all(len(each) == 0 for worker, each in enumerate(slices) if worker not in takers)


def test_shares_that_add_up_to_the_batch_are_the_sizes():
    assert [len(part) for part in split_by_shares(16, [13, 0, 3])] == [13, 0, 3]


@given(batch=st.integers(1, 64), cuts=st.lists(st.integers(0, 64), max_size=4), step=st.integers(0, 1000))
def test_parts_that_meet_are_whole_and_others_are_not(batch, cuts, step):
    ends = sorted({0, batch, *(cut for cut in cuts if cut <= batch)})
    parts = [Slice(step, a, b) for a, b in pairwise(ends)]

    def sums(parts):
        own = Announcement(1.0, 0.0, 1.0)
        numbers = [Contribution(part.step, ((part.start, part.stop),), own).numbers() for part in parts]
        return GradientSums(*map(sum, zip(*numbers, strict=True)))

    assert are_whole(sums(parts), step, batch)
    assert not are_whole(sums([*parts, parts[0]]), step, batch)
    assert not are_whole(sums([p._replace(step=step + 1) for p in parts[:1]] + parts[1:]), step, batch)
    if len(parts) > 1:
        first_twice = [parts[0]._replace(stop=parts[0].stop), *(Slice(step, 0, p.num_samples) for p in parts[1:])]
        assert not are_whole(sums(first_twice), step, batch)


def after(since_quorum_s, *, is_settled=True, **values):
    """How the step begins after a commit so long after the last quorum."""
    values |= {"part": Slice(5, 0, 4), "batch": 8, "began_at": 0.0, "is_confirmed": True}
    return next_step(StepAttempt(since_quorum_s=since_quorum_s, **values), is_settled=is_settled)


def test_short_steps_ask_for_a_quorum_every_half_second():
    assert after(0.01) is after(0.49) is NextStep.GOES_ON
    assert after(0.51) is after(0.0) is after(math.nan) is NextStep.PRESUMES


def test_a_group_that_may_change_or_wait_asks_for_a_quorum():
    assert after(0.01, is_settled=False) is NextStep.PRESUMES
    assert after(0.01, someone_pauses=True) is NextStep.PRESUMES
    assert after(0.01, someone_leaves=True) is NextStep.WAITS


def test_a_backend_that_does_not_exist_is_refused():
    with pytest.raises(SettingsError, match="glo"):
        check_backend("glo")


def test_patience_follows_the_steps():
    patience = StepTimeout()
    assert patience.timeout().total_seconds() == 20
    for _ in range(5):
        patience.committed(0.1)
    assert patience.timeout().total_seconds() == pytest.approx(1.5)
    for _ in range(5):
        patience.committed(2.0)
    assert patience.timeout().total_seconds() == pytest.approx(7.0)
    for _ in range(20):
        patience.committed(0.1)
    patience.committed(10.0)
    assert patience.timeout().total_seconds() == pytest.approx(1.5)


def test_a_slow_peer_that_lives_is_waited_for_longer_each_time():
    patience = StepTimeout()
    for _ in range(5):
        patience.committed(0.1)
    waits = []
    for _ in range(8):
        patience.spoiled(someone_left=False)
        waits.append(patience.timeout().total_seconds())
    assert waits[:3] == [3.0, 6.0, 12.0]
    assert waits[-1] <= 120
    patience.spoiled(someone_left=True)
    assert patience.timeout().total_seconds() == pytest.approx(1.5)
    patience.healing(10_000_000)
    assert patience.timeout().total_seconds() == pytest.approx(1.5 + 5 + 40)  # 2 Mbit/s
    patience.healing(1_000_000_000)  # no constant is enough for every state
    assert patience.timeout().total_seconds() > 4000


def test_gradients_that_take_minutes_on_a_slow_link_are_waited_for():
    patience = StepTimeout()
    patience.exchanges(500_000_000)
    assert patience.timeout().total_seconds() == pytest.approx(20 + 1000)
    for _ in range(3):
        patience.committed(200.0)
    assert patience.timeout().total_seconds() == pytest.approx(601)  # longer than the two minutes that usually suffice


def member(name, machine=None, *, step=0, weights="", history=""):
    return Member(
        name=name,
        machine=machine or name,
        step=step,
        state_address="",
        model="",
        nccl="",
        introduction=WorkerIntroduction(),
        state=StateDigest(weights, history),
    )


def change(before, now, **values):
    return group_change(before, now, **{"step": 1, "quorum_id": 4, "has_stopped": False, "stall_s": 0.1, **values})


def test_machines_that_leave_and_come_are_told_by_name():
    before = Roster((member("bo-0", "bo"), member("bo-1", "bo"), member("lily-0", "lily")), 0)
    after = Roster((member("bo-0", "bo"), member("rosa-0", "rosa")), 0)
    assert change(before, before, step=7, stall_s=0.0) is None
    changed = change(before, after, step=812, stall_s=1.04)
    assert changed.left == {"lily": [], "bo": ["bo-1"]}
    assert changed.joined == {"rosa": []}
    assert group_lines(changed) == [
        "lily left at step 812; 2 machines go on (1.0 s)",
        "a worker of bo (bo-1) left at step 812; 2 machines go on (1.0 s)",
        "rosa joined at step 812; 2 machines go on (1.0 s)",
    ]
    changed = change(after, Roster(after.members[:1], 0), step=9, stall_s=1.0)
    assert group_lines(changed) == ["rosa left at step 9; 1 machine goes on (1.0 s)"]


def test_a_change_of_the_group_says_whether_who_left_had_said_so():
    one, both = Roster((member("bo-0", "bo"),), 0), Roster((member("bo-0", "bo"), member("lily-0", "lily")), 0)
    assert change(one, both).reason == "joined"
    assert change(both, one).reason == "lost"
    assert change(both, one, has_stopped=True).reason == "stopped"


def test_where_weights_differ_those_of_a_trained_worker_count():
    fresh = Roster((member("a", step=4, weights="x"), member("b", step=4, weights="y"), member("c", step=1)), 1)
    assert fresh.reference.name == "a"
    trained = Roster((member("a", step=4, weights="x"), member("b", step=4), member("c", step=1)), 0)
    assert trained.reference.name == "b"


def test_where_histories_differ_the_state_of_most_counts():
    histories = {"a": "1", "b": "2", "c": "2", "d": "2"}
    members = [member(name, step=4, history=history) for name, history in histories.items()]
    roster = Roster((*members[:3], member("d", step=3, history="2"), member("e", step=4, weights="x")), 0)
    assert roster.reference.name == "b"
    assert [holder.name for holder in roster.holders] == ["b", "c"]  # d is behind, e has not trained
    assert Roster(tuple(members[:2]), 0).reference.name == "a"  # of as many, the first


def test_the_hosts_first_worker_writes_and_where_it_has_none_the_first_of_all():
    members = (member("ann-0", "ann"), member("rosa-1", "rosa"), member("rosa-2", "rosa"))
    for host, writer in (("rosa", 1), ("ann", 0), ("lily", 0), ("", 0)):
        assert writers([replace(one, host=host) for one in members]) == [writer]


@pytest.mark.parametrize("hosts", list(product(["ann", "lily", "rosa"], repeat=3)))
def test_one_worker_writes_also_if_workers_were_started_under_different_hosts(hosts):
    names = ("ann", "lily", "rosa")
    members = [replace(member(f"{name}-0", name), host=host) for name, host in zip(names, hosts, strict=True)]
    (writer,) = writers(members)
    assert hosts.count(names[writer]) == max(map(hosts.count, hosts)), "the host of most of them"


def writers(members):
    """Those that say of themselves that they write."""
    return [index for index in range(len(members)) if Roster(tuple(members), index).writes]


def test_who_is_behind_takes_nothing():
    members = tuple(member(name, step=step) for name, step in (("a", 5), ("b", 3), ("c", 5)))
    assert Roster(members, 1).participants() == [0, 2]
    assert Roster(members, 1).step == 5


def test_addresses():
    assert host_and_port("http://10.0.0.1:29500") == ("10.0.0.1", 29500)
    assert host_and_port("rosa:1") == ("rosa", 1)
    with pytest.raises(GroupError, match="not an address"):
        host_and_port("rosa")
    assert address_towards("127.0.0.1") == "127.0.0.1"


def test_buckets_leave_little_that_backward_cannot_hide():
    assert bucket_bytes(1_500_000) == 1 << 20
    assert bucket_bytes(102 << 20) == (102 << 20) // 16
    assert bucket_bytes(10 << 30) == 25 << 20
    assert bucket_bytes(1_500_000, "int4") == 1 << 18


def test_a_group_is_whole_when_nobody_waits_for_others_who_are_missing():
    first, second = member("first"), member("second")
    waits = replace(first, awaited=("first", "second"))
    assert Roster((first, second), 0).is_whole
    assert Roster((first,), 0).is_whole
    assert Roster((waits, second), 1).is_whole
    assert not Roster((waits,), 0).is_whole
    assert not Roster((waits, member("third")), 1).is_whole  # the third spoils the step too, and waits for nobody
