"""Addresses of a cluster: the same on every machine, apart from other clusters', and really there."""

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import GateError
from potluck.gates.loopback import (
    MOST_MACHINES,
    address_of,
    check_takes,
    choose_block,
    listening_ports,
    parse_end,
    spell_end,
)


@given(st.integers(1, MOST_MACHINES), st.integers(1, MOST_MACHINES))
def test_machines_of_a_cluster_have_different_addresses_of_loopback(one, other):
    block = choose_block(set())
    first, second = address_of(block, one), address_of(block, other)
    assert (first == second) == (one == other)
    assert first.startswith("127.")
    assert first not in ("127.0.0.1", "127.0.1.1", "127.0.0.53")


def test_clusters_do_not_share_addresses():
    block = choose_block(set())
    for _ in range(300):
        other = choose_block({address_of(block, 7)})
        assert {address_of(block, number) for number in (1, MOST_MACHINES)}.isdisjoint(
            {address_of(other, 1), address_of(other, MOST_MACHINES)}
        )
        assert other != block


@pytest.mark.parametrize("number", [0, -1, MOST_MACHINES + 1])
def test_there_is_room_for_so_many_machines_and_no_more(number):
    with pytest.raises(GateError, match="4094 machines"):
        address_of("127.77.16.0", number)


def test_this_machine_takes_such_addresses_and_says_so_if_not():
    check_takes(address_of(choose_block(), 3))
    with pytest.raises(GateError, match=r"does not take 192\.0\.2\.1") as refused:
        check_takes("192.0.2.1")
    assert "ip link set dev lo up" in refused.value.fix


def test_ports_of_this_process_are_found_by_their_sockets():
    with socket.create_server(("127.77.16.9", 0)) as server:
        inode = os.fstat(server.fileno()).st_ino
        assert listening_ports("127.77.16.9", {inode}) == {server.getsockname()[1]}
        assert listening_ports("127.77.16.8", {inode}) == set()
        assert listening_ports("127.77.16.9", set()) == set()


@given(st.ip_addresses(v=4).map(str), st.integers(0, 65535))
def test_the_kernels_spelling_can_be_read_and_written(address, port):
    assert parse_end(spell_end(address, port)) == (address, port)
