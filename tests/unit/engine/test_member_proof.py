"""A worker's entry in the store counts only with a proof that its writer knows the run's secret, for this group."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.engine.roster import Member, read_signed, sign

SECRET, GROUP = b"the run's secret", "127.77.16.1:29000/torchft/3/0"
MEMBER = Member(name="lily-1", machine="lily", share=None, step=7, state_address="127.77.16.2:1", model="m", nccl="")


def test_who_knows_the_secret_is_read():
    read = read_signed(SECRET, GROUP, 1, sign(SECRET, GROUP, 1, MEMBER).encode())
    assert (read.name, read.machine, read.step) == ("lily-1", "lily", 7)


@pytest.mark.parametrize(
    ("secret", "group", "rank"),
    [(b"another", GROUP, 1), (SECRET, "127.77.16.1:29000/torchft/4/0", 1), (SECRET, GROUP, 2)],
)
def test_an_entry_of_a_stranger_another_group_or_another_place_counts_for_nothing(secret, group, rank):
    assert read_signed(SECRET, GROUP, 1, sign(secret, group, rank, MEMBER).encode()) is None


@given(st.binary(max_size=300))
def test_nonsense_counts_for_nothing(content):
    assert read_signed(SECRET, GROUP, 1, content) is None


@given(st.integers(0, 500), st.integers(0, 255))
def test_a_changed_entry_counts_for_nothing(position, value):
    good = bytearray(sign(SECRET, GROUP, 1, MEMBER).encode())
    position %= len(good)
    changed = good[position] != value
    good[position] = value
    assert (read_signed(SECRET, GROUP, 1, bytes(good)) is None) == changed
