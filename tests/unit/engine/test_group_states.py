"""A group's states and what they stand on: the switch between them, a quorum's session, an introduction."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.engine.balance.worker_cost import WorkerCost
from potluck.engine.group.forming import SelfDescription, introduce
from potluck.engine.group.protocol import Announcement
from potluck.engine.group.roster import Member, Roster
from potluck.engine.group.session import GroupSession
from potluck.engine.group.switching import SwitchingGroup
from potluck.engine.order.position import DataOrder
from potluck.events.types import StepTiming
from potluck.planning.costs import ComputeProfile
from potluck.planning.replanning.setting import WorkerIntroduction
from tests.fake_group import FakeGroup

BATCH = 48
FOURS = DataOrder(40, 4, seed=0)


def member(name, *, step=0):
    told = WorkerIntroduction()
    return Member(name=name, machine=name, step=step, state_address="", model="", nccl="", introduction=told)


def sessions(steps, **options):
    """The same quorum as each of its members sees it."""
    members = tuple(member(f"worker{index}", step=step) for index, step in enumerate(steps))
    return [GroupSession(roster=Roster(members, mine), quorum_id=3, **options) for mine in range(len(members))]


@given(
    steps=st.lists(st.integers(0, 2), min_size=1, max_size=6),
    shares=st.lists(st.integers(1, 20), min_size=6, max_size=6),
    has_committed=st.booleans(),
)
def test_the_parts_of_all_members_are_the_batch(steps, shares, has_committed):
    quorum = sessions(steps, has_committed=has_committed)
    for step in (max(steps), max(steps) + 1):
        parts = [session.part(step, BATCH, shares[: len(steps)]) for session in quorum]
        taken = [index for part in parts for index in range(part.start, part.stop)]
        assert taken == list(range(BATCH))
        assert {part.step for part in parts} == {step}


def test_who_is_behind_takes_nothing_of_the_first_step_and_its_share_of_the_next():
    ahead, behind = sessions([7, 5])
    assert behind.is_behind
    assert not ahead.is_behind
    assert ahead.heals_somebody
    assert behind.part(7, BATCH, [1, 1]).num_samples == 0
    assert ahead.part(7, BATCH, [1, 1]).num_samples == BATCH
    assert behind.part(8, BATCH, [1, 1]).num_samples == BATCH // 2  # read ahead while the first step is under way
    behind.has_committed = True
    assert not behind.is_behind
    assert behind.part(7, BATCH, [1, 1]).num_samples == BATCH // 2


def test_machines_that_left_the_ring_are_no_part_of_the_session():
    session = sessions([4, 4, 4], has_committed=True)[2]
    left = session.without(["worker1"])
    assert left.roster.order == ("worker0", "worker2")
    assert (left.quorum_id, left.roster.mine, left.has_committed) == (3, 1, True)


@pytest.fixture
def cost():
    known = WorkerCost(None)
    known.begin_with(ComputeProfile(fixed_s=0.01, per_sample_s=0.002, memory_cap=None))
    return known


def test_an_introduction_waits_for_others_only_if_the_lighthouse_is_new(cost):
    introduction = SelfDescription(member=member("bo"), cost=cost, global_batch=BATCH, trained_with=("bo", "lily"))
    assert introduce(introduction, 2, float("-inf")).awaited == ()
    assert introduce(introduction, 2, time.monotonic()).awaited == ("bo", "lily")
    assert introduce(introduction, 2, float("-inf")).introduction.cost == cost.introduction(BATCH // 2)


def test_what_torchfts_thread_reads_does_not_change_while_training_goes_on(cost):
    introduction = SelfDescription(member=member("bo"), cost=cost.snapshot(), global_batch=8, trained_with=())
    before = introduce(introduction, 1, float("-inf"))
    for _ in range(20):
        cost.committed(8, 1, StepTiming(compute_s=1.0), cpu_s=1.0)
    assert introduce(introduction, 1, float("-inf")) == before
    assert introduce(replace(introduction, cost=cost.snapshot()), 1, float("-inf")) != before


class FakeState(FakeGroup):
    """A state that moves on to another when a test says so."""

    def __init__(self, verdicts=(), *, ahead=0):
        super().__init__(verdicts)
        self.ahead = ahead
        self.next = self
        self.is_closed = False

    def catch_up(self, step):
        return step + self.ahead

    def successor(self):
        return self.next

    def close(self):
        self.is_closed = True


class FakeConnection:
    is_closed = False

    def close(self):
        self.is_closed = True


def test_a_state_hands_over_between_steps_only():
    connection, first, second = FakeConnection(), FakeState([True, False]), FakeState()
    group = SwitchingGroup(connection, first)
    assert group.begin(0, FOURS).step == 0
    first.next = second
    assert group.announce(Announcement(4.0, 1.0, 1.0)) == first.begun[-1]  # the step under way ends where it began
    assert group.commit()
    group.begin(1, FOURS)
    assert (len(first.begun), len(second.begun)) == (1, 1)
    group.close()
    assert (first.is_closed, second.is_closed, connection.is_closed) == (False, True, True)


def test_a_state_that_caught_up_hands_over_the_step_that_it_reached():
    bench, ring = FakeState(ahead=5), FakeState()
    bench.next = ring
    assert SwitchingGroup(FakeConnection(), bench).begin(2, FOURS).step == 7
    assert ring.begun[-1].step == 7
