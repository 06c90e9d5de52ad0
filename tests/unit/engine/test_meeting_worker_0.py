"""Where the workers of a launch by hand meet worker 0, and what is said when that cannot work."""

import socket

import pytest

from potluck.core.environment import Launch
from potluck.core.errors import GroupError
from potluck.engine.group import launch as launching
from potluck.engine.group.addresses import address_towards, answers, is_own, own_address


def launch(rank, host, port=29500, expected=2):
    return Launch(
        lighthouse=None,
        secret="",
        worker=rank,
        expected=expected,
        share=None,
        master=(host, port),
        rank=rank,
        local_rank=0,
        num_threads=None,
        has_agent_store=False,
    )


def test_worker_0_without_an_address_takes_its_own_and_prints_the_line_for_the_others():
    settled, (note,) = launching._settle_on_master(launch(0, ""))
    assert settled.master == (own_address(), 29500)
    assert f"export RANK=1 WORLD_SIZE=2 MASTER_ADDR={own_address()} MASTER_PORT=29500" in note
    _, (note,) = launching._settle_on_master(launch(0, "", expected=4))
    assert "with RANK=1 to RANK=3" in note


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.1", "localhost"])
def test_an_own_address_is_taken_as_it_is(host):
    assert is_own(host)
    assert launching._settle_on_master(launch(0, host)) == (launch(0, host), ())


def test_two_machines_with_rank_0_are_told(monkeypatch):
    monkeypatch.setattr(launching, "is_own", lambda host: False)  # as if the address were the other machine's
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(GroupError) as raised:
            launching._settle_on_master(launch(0, "127.0.0.1", port))
    assert "two machines have RANK=0: this one, and 127.0.0.1" in str(raised.value)
    assert "export RANK=1" in raised.value.fix
    # Nobody answers yet: this machine may be worker 0 behind a router, so it is a note and no error.
    _, (note,) = launching._settle_on_master(launch(0, "127.0.0.1", port))
    assert "MASTER_ADDR=127.0.0.1 is no address of this machine" in note


def test_an_address_of_nobody_is_not_this_machines():
    assert not is_own("192.0.2.77")
    assert not is_own("no-such-name.invalid")
    assert not answers("127.0.0.1", 1, 1.0)


def test_a_machine_without_a_default_route_offers_its_only_address(monkeypatch):
    from potluck.engine.group import addresses
    from potluck.machine.facts import LOOPBACK, WIRED, Interface

    def no_route(host):
        raise GroupError("no route", fix="")

    def interfaces(*found):
        return lambda: tuple(
            Interface(name=f"e{n}", kind=kind, is_up=True, addresses=(f"{a}/24",)) for n, (kind, a) in enumerate(found)
        )

    assert address_towards("127.0.0.1") == "127.0.0.1"
    monkeypatch.setattr(addresses, "address_towards", no_route)
    monkeypatch.setattr(addresses, "read_interfaces", interfaces((LOOPBACK, "127.0.0.1"), (WIRED, "10.1.0.2")))
    assert own_address() == "10.1.0.2"
    monkeypatch.setattr(addresses, "read_interfaces", interfaces((WIRED, "10.1.0.2"), (WIRED, "10.2.0.2")))
    with pytest.raises(GroupError, match=r"2 addresses: 10.1.0.2, 10.2.0.2"):
        own_address()
