"""A worker's entry in the store counts only with a proof that its writer knows the run's secret, for this group."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.engine.group.roster import Member, read_signed, sign
from potluck.planning.costs import LinkProfile
from potluck.planning.measured_exchange import RingMeasurement
from potluck.planning.replanning.cost_report import CostReport
from potluck.planning.replanning.setting import WorkerIntroduction

SECRET, GROUP = b"the run's secret", "127.77.16.1:29000/torchft/3/0"
INTRODUCTION = WorkerIntroduction(
    cost=CostReport(0.01, 0.002, 0.0, 0.02, 0.1, 1.0, tuple(range(10))),
    share=3,
    keep=("lily",),
    link=LinkProfile(latency_s=1e-4, bandwidth_bytes_per_s=1e8),
    last_step=100,
    kept_ring=RingMeasurement(machines=("bo", "lily"), work_s=0.1, exposed_s=0.02),
)
MEMBER = Member(
    name="lily-1",
    machine="lily",
    step=7,
    state_address="127.77.16.2:1",
    model="m",
    nccl="",
    awaited=("bo-0",),
    introduction=INTRODUCTION,
)


def test_who_knows_the_secret_is_read_as_it_was_written():
    assert read_signed(SECRET, GROUP, 1, sign(SECRET, GROUP, 1, MEMBER).encode()) == MEMBER


@pytest.mark.parametrize(
    ("secret", "group", "rank"),
    [(b"another", GROUP, 1), (SECRET, "127.77.16.1:29000/torchft/4/0", 1), (SECRET, GROUP, 2)],
)
def test_an_entry_of_a_stranger_another_group_or_another_place_counts_for_nothing(secret, group, rank):
    assert read_signed(SECRET, GROUP, 1, sign(secret, group, rank, MEMBER).encode()) is None


@given(st.binary(max_size=300))
def test_nonsense_counts_for_nothing(content):
    assert read_signed(SECRET, GROUP, 1, content) is None


@given(st.integers(0, 1000), st.integers(0, 255))
def test_a_changed_entry_counts_for_nothing(position, value):
    good = bytearray(sign(SECRET, GROUP, 1, MEMBER).encode())
    position %= len(good)
    changed = good[position] != value
    good[position] = value
    assert (read_signed(SECRET, GROUP, 1, bytes(good)) is None) == changed
