"""Pure decisions of a group: the split, the backend, the patience, the check that parts add up."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import GroupError, SettingsError
from potluck.engine.addresses import address_towards, host_and_port
from potluck.engine.backend import check_backend, choose_backend
from potluck.engine.exchange import Contribution, Sums, are_whole
from potluck.engine.patience import Patience
from potluck.engine.position import Slice
from potluck.engine.roster import Member, Roster, tell_changes
from potluck.planning.costs import bucket_bytes
from potluck.planning.split import split_by_shares


@given(batch=st.integers(0, 500), shares=st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_parts_cover_the_batch_in_order(batch, shares):
    parts = split_by_shares(batch, shares)
    assert [index for part in parts for index in part] == list(range(batch))
    if any(shares):
        exact = [batch * share / sum(shares) for share in shares]
        assert all(abs(len(part) - size) < 1 for part, size in zip(parts, exact, strict=True))
        assert all(len(part) == 0 for part, share in zip(parts, shares, strict=True) if share == 0)


def test_shares_that_add_up_to_the_batch_are_the_sizes():
    assert [len(part) for part in split_by_shares(16, [13, 0, 3])] == [13, 0, 3]


@given(batch=st.integers(1, 64), cuts=st.lists(st.integers(0, 64), max_size=4), step=st.integers(0, 1000))
def test_parts_that_meet_are_whole_and_others_are_not(batch, cuts, step):
    ends = sorted({0, batch, *(cut for cut in cuts if cut <= batch)})
    parts = [Slice(step, a, b) for a, b in pairwise(ends)]

    def sums(parts):
        return Sums(*map(sum, zip(*(Contribution(p, 1.0, 0.0, 1.0).numbers() for p in parts), strict=True)))

    assert are_whole(sums(parts), step, batch)
    assert not are_whole(sums([*parts, parts[0]]), step, batch)
    assert not are_whole(sums([p._replace(step=step + 1) for p in parts[:1]] + parts[1:]), step, batch)
    if len(parts) > 1:
        first_twice = [parts[0]._replace(stop=parts[0].stop), *(Slice(step, 0, p.num_samples) for p in parts[1:])]
        assert not are_whole(sums(first_twice), step, batch)


def test_nccl_needs_the_same_version_everywhere():
    assert choose_backend("auto", ["2.27", "2.27"]) == "nccl"
    assert choose_backend("auto", ["2.27", ""]) == "gloo"
    assert choose_backend("auto", ["2.27", "2.26"]) == "gloo"
    assert choose_backend("gloo", ["2.27", "2.27"]) == "gloo"
    with pytest.raises(GroupError, match=r"the workers have: 2\.27, none"):
        choose_backend("nccl", ["2.27", ""])
    with pytest.raises(SettingsError, match="glo"):
        check_backend("glo")


def test_patience_follows_the_steps():
    patience = Patience()
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
    patience = Patience()
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
    assert patience.timeout().total_seconds() == pytest.approx(16.5)


def member(name, machine=None, *, step=0, weights=""):
    return Member(
        name=name,
        machine=machine or name,
        share=1,
        step=step,
        state_address="",
        model="",
        nccl="",
        weights=weights,
    )


def test_machines_that_leave_and_come_are_told_by_name():
    before = Roster((member("bo-0", "bo"), member("bo-1", "bo"), member("lily-0", "lily")), 0)
    after = Roster((member("bo-0", "bo"), member("rosa-0", "rosa")), 0)
    assert tell_changes(before, before, 7, 0.0) == []
    assert tell_changes(before, after, 812, 1.04) == [
        "lily left at step 812; 2 machines go on (1.0 s)",
        "a worker of bo (bo-1) left at step 812; 2 machines go on (1.0 s)",
        "rosa joined at step 812; 2 machines go on (1.0 s)",
    ]
    assert tell_changes(after, Roster(after.members[:1], 0), 9, 1.0) == [
        "rosa left at step 9; 1 machine goes on (1.0 s)"
    ]


def test_where_weights_differ_those_of_a_trained_worker_count():
    fresh = Roster((member("a", step=4, weights="x"), member("b", step=4, weights="y"), member("c", step=1)), 1)
    assert fresh.example.name == "a"
    trained = Roster((member("a", step=4, weights="x"), member("b", step=4), member("c", step=1)), 0)
    assert trained.example.name == "b"


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
