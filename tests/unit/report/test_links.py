"""Whose link is slow, from what workers saw of their sending."""

import socket
import threading

from potluck.events.types import MachineUsed
from potluck.machine.flows import FlowMeter
from potluck.report.links import SendingRates, slowest_of

ADDRESSES = {"rosa": "10.0.0.1", "lily": "10.0.0.2", "fern": "10.0.0.3"}


def used(machine, **rates):
    sending = {ADDRESSES[peer]: rate for peer, rate in rates.items()}
    return MachineUsed(
        cpu=0.5,
        memory_bytes=1,
        memory_total_bytes=2,
        sent_bytes_per_s=0.0,
        received_bytes_per_s=0.0,
        address=ADDRESSES[machine],
        sending_bytes_per_s=sending,
    )


def told(*looks):
    rates = SendingRates()
    for machine, look in looks:
        rates.add(machine, used(machine, **look))
    return rates.slowest_link()


def test_in_a_ring_the_machine_stands_out_whose_both_ways_are_slow():
    ring = [("rosa", {"lily": 1e6}), ("lily", {"fern": 1e7}), ("fern", {"rosa": 1e6})]
    assert told(*ring) == "rosa"


def test_equal_links_and_two_machines_single_nobody_out():
    assert told(("rosa", {"lily": 1e7}), ("lily", {"fern": 9e6}), ("fern", {"rosa": 1.1e7})) == ""
    assert told(("rosa", {"lily": 1e6}), ("lily", {"rosa": 1e6})) == ""
    assert slowest_of({}) == ""


def test_a_link_that_is_slow_for_a_while_is_not_hidden_by_better_times():
    good = [("rosa", {"lily": 2e7}), ("lily", {"fern": 2e7}), ("fern", {"rosa": 2e7})]
    bad = [("rosa", {"lily": 1e6}), ("lily", {"fern": 2e7}), ("fern", {"rosa": 1e6})]
    assert told(*good * 5, *bad * 2) == "rosa"


def test_a_damaged_rate_of_nothing_is_no_rate():
    ring = [("rosa", {"lily": 1e6}), ("lily", {"fern": 1e7}), ("fern", {"rosa": 1e6})]
    assert told(*ring, ("rosa", {"lily": 0.0})) == "rosa"


def test_workers_that_share_an_address_are_not_told_apart():
    rates = SendingRates()
    for machine in ("rosa", "lily", "fern"):
        rates.add(machine, used("rosa", rosa=1e6))
    assert rates.slowest_link() == ""


def test_linux_tells_how_fast_this_process_sends():
    """Between two addresses of loopback, as between two machines."""
    num_bytes = 20 << 20

    def read_all(connection):
        left = num_bytes
        while left:
            left -= len(connection.recv(1 << 20))

    with (
        socket.create_server(("127.0.0.2", 0)) as server,
        socket.create_connection(server.getsockname(), source_address=("127.0.0.1", 0)) as sender,
        server.accept()[0] as receiver,
    ):
        meter, rates = FlowMeter(), {}
        for _ in range(20):  # while this thread is late to read, the sender only waits for it, and there is no rate
            reading = threading.Thread(target=read_all, args=[receiver])
            reading.start()
            sender.sendall(bytes(num_bytes))
            reading.join()
            address, rates = meter.look()
            if rates:
                break
        assert meter.look() == ("", {})
    assert address == "127.0.0.1"
    assert list(rates) == ["127.0.0.2"]
    assert rates["127.0.0.2"] > 1e6
