"""What belongs on the computer around a container is said to belong there, and never as a command for the container."""

import pytest

from potluck.doctor.checks.between import _send_smaller, _set_clock
from potluck.doctor.examination import is_on_bridge
from potluck.doctor.finding import in_one_line
from potluck.doctor.firewall_fixes import open_for
from potluck.machine.facts import Facts, Interface, System
from potluck.meeting.access.networks import ReachableInterface
from potluck.meeting.host import own_firewall
from potluck.meeting.host.own_firewall import firewall_lines


def container(*addresses: str, kind: str | None = "docker") -> Facts:
    interfaces = tuple(Interface(name=f"eth{n}", addresses=(address,)) for n, address in enumerate(addresses))
    return Facts(
        machine="attic", hostname="0a1b2c", system=System(family="linux", container=kind), interfaces=interfaces
    )


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_rule_for_the_firewall_belongs_on_the_computer_around_the_container(kind):
    fix = open_for(container("172.17.0.2/16", kind=kind), ["192.168.1.0/24"], 29500)
    assert not fix.commands
    assert "on the computer that runs this container, not inside the container" in in_one_line(fix)
    assert f"{kind} run --publish 29500:29500" in fix.note
    assert "sudo ufw allow from 192.168.1.0/24 to any port 29500 proto tcp" in fix.note
    assert "nft" not in fix.note


def test_a_whole_system_in_a_container_has_a_firewall_of_its_own():
    assert open_for(container("192.168.1.9/24", kind="lxc"), ["192.168.1.0/24"], 29500).commands


def test_a_clock_is_set_on_the_computer_around_the_container():
    fix = _set_clock(container("172.17.0.2/16"))
    assert not fix.commands
    assert "on the computer around the container" in fix.note


def test_a_bridge_with_smaller_packets_is_made_on_the_computer():
    facts = container("172.17.0.2/16")
    fix = _send_smaller(facts, facts.interfaces[0])
    assert not fix.commands
    assert "docker network create --opt com.docker.network.driver.mtu=1280 small" in fix.note


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (container("172.17.0.2/16"), True),
        (container("10.88.0.5/16", kind="podman"), True),
        (container("10.89.1.5/24", "172.19.0.2/16"), True),
        (container("192.168.1.9/24", "172.17.0.1/16"), False),  # --network=host
        (container("172.17.0.2/16", kind=None), False),
        (container(), False),
    ],
)
def test_a_container_with_no_address_but_a_bridges_is_on_a_bridge(facts, expected):
    assert is_on_bridge(facts.system, facts.addresses) is expected


def test_a_host_on_a_bridge_prints_no_rule_and_one_on_the_computers_network_says_where_it_belongs(monkeypatch):
    monkeypatch.setattr(own_firewall, "can_read_rules", lambda: False)  # as in a container that may not ask nft
    bridge = ReachableInterface(name="eth0", address="172.17.0.2", network="172.17.0.0/16")
    assert firewall_lines(container("172.17.0.2/16"), [bridge], 29500) == []
    network = ReachableInterface(name="eth0", address="192.168.1.9", network="192.168.1.0/24")
    unread = container("192.168.1.9/24")
    said, where = firewall_lines(unread, [network], 29500)
    assert "the computer around this container" in said
    assert "not inside the container" in where
    assert "192.168.1.0/24" in where
