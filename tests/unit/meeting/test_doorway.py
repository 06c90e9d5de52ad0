import time
from functools import cache
from pathlib import Path

import pytest

from potluck.core.errors import MeetingError
from potluck.gates.identity import Identity, make_certificate
from potluck.machine.facts import BRIDGE, LOOPBACK, TUNNEL, VIRTUAL, WIRELESS, Firewall, System, Wsl
from potluck.machine.facts import Facts as Snapshot
from potluck.meeting.access.introduction import introduce
from potluck.meeting.access.networks import ReachableInterface, best_first, find_interface
from potluck.meeting.host import admission_checks
from potluck.meeting.host.listening import bind
from potluck.meeting.wire import Introduction

IDENTITY = Identity(Path("certificate.pem"), Path("key.pem"), make_certificate()[0])
VERSIONS = {"potluck": "0.1.0", "torch": "2.13.0+cpu", "torchft": "0.2.0", "python": "3.11.7"}


@cache
def certificate_of(machine):
    """Every machine has its own."""
    return make_certificate()[0]


def facts(machine="lily", *, versions=None, **more):
    return Introduction(
        machine=machine,
        machine_id=more.pop("machine_id", machine),
        os=more.pop("os", "Debian"),
        cores=2,
        firewall_command=more.pop("firewall_command", "nft insert rule"),
        address=more.pop("address", "10.0.0.2"),
        certificate=more.pop("certificate", None) or certificate_of(machine),
        versions={**VERSIONS, **(versions or {})},
        **more,
    )


HOST = facts("rosa", address="10.0.0.1")


@pytest.mark.parametrize(
    ("package", "version", "fix"),
    [
        ("potluck", "0.1.1", "the line for a machine without Potluck that potluck host prints"),
        ("torch", "2.10.1+cu128", "pip install 'torch==2.13.0'"),
        ("torch", "missing", "pip install 'torch==2.13.0'"),
        ("torchft", "0.3.0", "pip install 'torchft==0.2.0'"),
        ("Python", "3.8.2", "--python 3.11"),
    ],
)
def test_versions_that_do_not_train_together_are_refused_with_the_command(package, version, fix):
    with pytest.raises(MeetingError, match=f"lily has {package} ") as refused:
        admission_checks.check_versions(facts(versions={package.lower(): version}), HOST)
    assert fix in refused.value.fix
    assert "on lily" in refused.value.fix


def test_another_potluck_is_replaced_by_the_hosts_own_wheel():
    install = "python -m pip install 'http://10.0.0.1:29500/key/potluck-0.1.0-py3-none-any.whl#sha256=00'"
    with pytest.raises(MeetingError, match=r"lily has potluck 0\.1\.1, rosa has 0\.1\.0") as refused:
        admission_checks.check_versions(facts(versions={"potluck": "0.1.1"}), HOST, install=install)
    assert refused.value.fix == f"on lily: in the environment that has Potluck: {install}, then join again"


def test_builds_and_patches_may_differ():
    assert admission_checks.check_versions(facts(versions={"torch": "2.13.1+cu128", "python": "3.11.2"}), HOST) == ()


def test_a_minor_version_may_differ_after_a_parity_check():
    near = facts(versions={"torch": "2.11.0", "python": "3.13.0"})
    assert admission_checks.check_versions(near, HOST) == ("torch", "python")


@pytest.mark.parametrize("ahead_s", [60.0, -60.0, 6.0])
def test_a_clock_that_is_off_is_refused(ahead_s):
    word = "ahead of" if ahead_s > 0 else "behind"
    with pytest.raises(MeetingError, match=f"lily's clock is {abs(ahead_s):.0f} s {word} rosa's") as refused:
        admission_checks.check_clock(facts(), HOST, ahead_s=ahead_s, round_trip_s=0.01)
    assert "timedatectl" in refused.value.fix
    with pytest.raises(MeetingError) as refused:
        admission_checks.check_clock(facts(os="Ubuntu (WSL2)"), HOST, ahead_s=ahead_s, round_trip_s=0.01)
    assert "wsl --shutdown" in refused.value.fix


@pytest.mark.parametrize(("ahead_s", "round_trip_s"), [(0.0, 0.0), (-4.9, 0.0), (8.0, 7.0)])
def test_a_clock_that_the_network_may_explain_is_fine(ahead_s, round_trip_s):
    admission_checks.check_clock(facts(), HOST, ahead_s=ahead_s, round_trip_s=round_trip_s)


def test_a_name_belongs_to_one_machine_which_may_come_back():
    admission_checks.check_name(facts(), None)
    admission_checks.check_name(facts(), facts())
    with pytest.raises(MeetingError, match="has joined as lily") as refused:
        admission_checks.check_name(facts(machine_id="other"), facts())
    assert "--name lily-2" in refused.value.fix
    assert "potluck leave lily" in refused.value.fix


@pytest.mark.parametrize("firewall", ["ufw", "firewalld", "iptables", "nftables", ""])
@pytest.mark.parametrize("wsl", [None, Wsl(mode="mirrored")])
def test_a_firewall_is_opened_to_the_network_for_one_port_and_no_further(firewall, wsl):
    tools = (firewall,) if firewall else ()
    seen = Snapshot(machine="lily", system=System(family="linux"), firewall=Firewall(tools=tools), wsl=wsl)
    told = introduce(
        seen,
        machine="lily",
        machine_id="1",
        address="10.0.0.2",
        network="10.0.0.0/24",
        identity=IDENTITY,
        gate_port=29507,
    )
    assert told.firewall_command.startswith("in PowerShell as administrator: " if wsl else "sudo ")
    assert "10.0.0.0/24" in told.firewall_command
    assert "29507" in told.firewall_command
    assert "65535" not in told.firewall_command
    assert "disable" not in told.firewall_command


def test_a_certificate_that_is_none_is_refused():
    with pytest.raises(ValueError, match="certificate"):
        facts(certificate="-----BEGIN NOTHING-----")


def interface(name, address="192.168.1.5", **more):
    return ReachableInterface(name=name, address=address, network="192.168.1.0/24", **more)


def test_the_best_address_comes_first_and_dead_ends_do_not_come():
    found = [
        interface("lo", "127.0.0.1", kind=LOOPBACK),
        interface("docker0", "172.17.0.1", kind=BRIDGE),
        interface("veth1", "172.18.0.1", kind=VIRTUAL),
        interface("eth9", "169.254.3.4"),
        interface("tailscale0", "100.64.0.1", kind=TUNNEL),
        interface("wlan0", kind=WIRELESS, has_default_route=True),
        interface("eth1"),
        interface("eth0", has_default_route=True),
    ]
    assert [each.name for each in best_first(found)] == ["eth0", "eth1", "wlan0", "tailscale0"]
    assert best_first(found)[0].reason == "eth0, wired, the default route"


def test_a_port_that_is_taken_is_named_with_a_way_out():
    with bind("127.0.0.1", 0) as taken, pytest.raises(MeetingError, match="already in use") as refused:
        bind("127.0.0.1", taken.getsockname()[1])
    assert "--port" in refused.value.fix
    with pytest.raises(MeetingError, match="no interface"):
        find_interface("203.0.113.9")


def test_a_certificate_that_no_gate_would_let_in_is_refused():
    admission_checks.check_certificate(facts(), now=time.time())
    expired, _ = make_certificate(days=-1)
    for bad in (expired, "nonsense", certificate_of("lily") + "-----BEGIN CERTIFICATE-----\nAAAA\n"):
        lily = facts().model_copy(update={"certificate": bad})
        with pytest.raises(MeetingError, match="damaged or has expired") as refused:
            admission_checks.check_certificate(lily, now=time.time())
        assert "rm -r ~/.potluck/identity" in refused.value.fix


def test_a_copied_identity_is_refused_and_an_own_one_is_not():
    copy = facts("fern", certificate=certificate_of("lily"))
    with pytest.raises(MeetingError, match="has the same identity as fern"):
        admission_checks.check_identity(copy, [facts("lily")])
    admission_checks.check_identity(
        facts("fern", certificate=certificate_of("lily"), machine_id="lily"), [facts("lily")]
    )
    admission_checks.check_identity(facts("fern"), [facts("lily")])
