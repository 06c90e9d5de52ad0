"""Which of NCCL's variables Potluck sets; what a user has set always wins."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.nccl_variables import nccl_defaults

LOG = Path("/runs/a/logs/rosa-0.nccl-7.log")


def defaults(given_values, interface="enp4s0", has_infiniband=False):
    return nccl_defaults(given_values, interface=interface, has_infiniband=has_infiniband, debug_file=LOG)


def test_the_interface_of_the_route_by_its_exact_name_and_no_infiniband_where_there_is_none():
    assert defaults({}) == {"NCCL_SOCKET_IFNAME": "=enp4s0", "NCCL_IB_DISABLE": "1"}
    assert defaults({}, interface="") == {"NCCL_IB_DISABLE": "1"}
    assert defaults({}, has_infiniband=True) == {"NCCL_SOCKET_IFNAME": "=enp4s0"}


@pytest.mark.parametrize("asked", ["NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_NET"])
def test_a_user_who_speaks_of_infiniband_decides_about_it(asked):
    assert "NCCL_IB_DISABLE" not in defaults({asked: "0"})


@pytest.mark.parametrize(("level", "goes_to_a_file"), [("INFO", True), ("trace", True), ("WARN", False), ("", False)])
def test_many_messages_go_to_a_file_and_warnings_stay_in_sight(level, goes_to_a_file):
    assert defaults({"NCCL_DEBUG": level}).get("NCCL_DEBUG_FILE") == (str(LOG) if goes_to_a_file else None)


NAMES = ["NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_P2P_DISABLE", "NCCL_NET"]


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["1", "INFO", "eth0"])), st.booleans())
def test_a_users_own_value_always_wins_and_direct_access_between_cards_is_left_to_nccl(given_values, has_infiniband):
    found = defaults(given_values, has_infiniband=has_infiniband)
    assert not found.keys() & given_values.keys()
    assert "NCCL_P2P_DISABLE" not in found
