"""Every check of several machines: what makes it name which machine, and a near miss that must stay silent."""

import pytest
from msgspec.structs import replace

from potluck.doctor.checks.catalogue import CLUSTER_CHECKS, examine_all
from potluck.doctor.examination import (
    OPEN,
    REFUSED,
    SILENT,
    STALLED,
    STRANGER,
    UNREACHABLE,
    DialledLink,
    Examination,
    IntendedRun,
    MissingAnswer,
    Reduction,
)
from potluck.doctor.finding import FAIL, UNKNOWN, WARN
from potluck.machine.facts import WIRELESS, Chain, Firewall, Route
from tests.unit.doctor.snapshots import snapshot, troubles

ADDRESSES = {"oak": "192.168.1.10", "ash": "192.168.1.11", "elm": "192.168.1.12"}
BLOCKING = Firewall(tools=("nftables",), chains=(Chain(family="inet", table="filter", name="input", may_block=True),))


def machine(name, base="desktop", **changes):
    facts = snapshot(base)
    interface = replace(facts.interfaces[0], addresses=(f"{ADDRESSES[name]}/24",))
    routes = (Route(network="192.168.1.0/24", interface=interface.name),)
    changed = {"hostname": name, "interfaces": (interface, facts.interfaces[-1]), "routes": routes, **changes}
    return replace(facts, machine=name, **changed)


def link(source, target, outcome=OPEN, **measured):
    if outcome == OPEN:
        measured = {"round_trip_s": 2e-4, "bytes_per_s": 110e6, "clock_offset_s": 0.0, **measured}
    return DialledLink(source=source, target=target, outcome=outcome, **measured)


def blocked(first, second, outcome=SILENT):
    """Neither can dial the other."""
    return link(first, second, outcome), link(second, first, outcome)


def cluster(*changed_links, machines=None, **more):
    """Three healthy machines, but for these links and machines."""
    facts = {name: machine(name) for name in ADDRESSES} | {one.machine: one for one in machines or ()}
    links = {(a, b): link(a, b) for a in ADDRESSES for b in ADDRESSES if a != b}
    links |= {(one.source, one.target): one for one in changed_links}
    well = tuple(Reduction(machine=name, names=tuple(ADDRESSES), is_sum_right=True) for name in ADDRESSES)
    values = {"reductions": well, "addresses": ADDRESSES, "ports": dict.fromkeys(ADDRESSES, 29500), **more}
    return Examination(machines=tuple(facts.values()), links=tuple(links.values()), **values)


GUARDED = [machine("ash", firewall=BLOCKING)]
WSL = [machine("ash", "wsl2_mirrored")]
OTHER_TORCH = replace(snapshot("desktop").software, torch=replace(snapshot("desktop").software.torch, version="2.8.0"))


def cards(name, nccl):
    facts = machine(name, "gpu_desktop")
    torch = replace(facts.software.torch, nccl=nccl, version="2.13.0")
    return replace(facts, software=replace(facts.software, torch=torch))


# id: (what was seen, the machine at fault, how bad, words of the finding or its fix, a near miss)
CASES = {
    "gate-closed": (
        cluster(*blocked("oak", "ash"), machines=GUARDED),
        "ash",
        FAIL,
        "nft insert rule inet filter input ip saddr '{ 192.168.1.10 }' tcp dport 29500 accept",
        cluster(link("oak", "ash", SILENT), machines=GUARDED),  # the other direction is enough
    ),
    "mtu": (
        cluster(link("oak", "ash", bytes_per_s=None, loses_large_packets=True)),
        "oak",
        FAIL,
        "sudo ip link set dev enp4s0 mtu 1280",
        cluster(),
    ),
    "slow-link": (
        cluster(
            *(
                link(a, b, bytes_per_s=2.4e6)
                for a, b in [("oak", "ash"), ("ash", "oak"), ("ash", "elm"), ("elm", "ash")]
            )
        ),
        "ash",
        WARN,
        "19 Mbit/s: 100 MB of gradients take 55.6 s a step between 3 machines",
        cluster(link("oak", "ash", bytes_per_s=2.4e6)),
    ),
    "clock-skew": (
        cluster(
            link("oak", "ash", clock_offset_s=40.0),
            link("elm", "ash", clock_offset_s=40.0),
            link("ash", "oak", clock_offset_s=-40.0),
            link("ash", "elm", clock_offset_s=-40.0),
        ),
        "ash",
        WARN,
        "40 s ahead",
        cluster(link("oak", "ash", clock_offset_s=2.0)),
    ),
    "peer-silent": (cluster(absent={"ivy": MissingAnswer(why="no answer")}), "ivy", FAIL, "switched on", cluster()),
    "all-reduce": (
        cluster(reductions=(Reduction(machine="elm", error="a wrong thing"),)),
        "elm",
        FAIL,
        "a wrong thing",
        cluster(reductions=None),
    ),
    "version-mismatch": (
        cluster(machines=[machine("ash", software=OTHER_TORCH)]),
        "ash",
        FAIL,
        "python -m pip install 'torch==2.13.0'",
        cluster(),
    ),
    "duplicate-hostname": (
        cluster(machines=[replace(machine("ash", hostname="oak"), machine="oak@192.168.1.77")]),
        "oak@192.168.1.77",
        FAIL,
        "export POTLUCK_NAME=oak-4",
        cluster(machines=[machine("ash", hostname="oak")]),  # the same hostname, and what the fix says
    ),
    "nccl-mismatch": (
        cluster(machines=[cards("ash", "2.27.3"), cards("elm", "2.21.5")]),
        "elm",
        WARN,
        "Gloo is used",
        cluster(machines=[cards("ash", "2.27.3"), cards("elm", "2.27.3")]),
    ),
    "missing-machines": (cluster(plan=IntendedRun(expected=("oak", "ivy"))), "ivy", FAIL, "joined", cluster()),
}


def test_versions_near_each_other_are_named_and_no_trouble():
    near = replace(snapshot("desktop").software.torch, version="2.12.1")
    seen = cluster(machines=[machine("ash", software=replace(snapshot("desktop").software, torch=near))])
    found = examine_all(seen, only=["version-mismatch"])
    assert not troubles(found)
    assert any("ash has torch 2.12.1, the others have 2.13.0" in one.what for one in found)


def test_the_doctor_says_how_gradients_would_be_exchanged_and_why():
    gpus = [cards(name, "2.27.3") for name in ADDRESSES]
    [told] = examine_all(cluster(machines=gpus), only=["nccl-mismatch"])
    assert told.what.startswith("gradients would go by NCCL, because every worker has a CUDA device of its own")
    [told] = examine_all(cluster(machines=gpus[1:]), only=["nccl-mismatch"])
    first = next(iter(ADDRESSES))
    assert f"Gloo through host memory, because {first} trains on its CPU; without {first} it would be NCCL" in told.what


def test_an_all_reduce_by_nccl_has_a_fix_of_its_own():
    failed = Reduction(machine="elm", error="no route", backend="nccl", device="cuda:0")
    [told] = troubles(examine_all(cluster(reductions=(failed,)), only=["all-reduce"]))
    assert told.what == "the all-reduce by NCCL on cuda:0 fails on elm: no route"
    assert "--backend gloo" in told.fixes[0].note


def test_every_check_has_a_case():
    assert set(CASES) == set(CLUSTER_CHECKS)


@pytest.mark.parametrize("check_id", CLUSTER_CHECKS)
def test_it_names_the_machine_and_stays_silent(check_id):
    sick, name, status, words, well = CASES[check_id]
    found = troubles(examine_all(sick, only=[check_id]))
    assert [(one.id, one.machine, one.status) for one in found] == [(check_id, name, status)]
    printed = [text for fix in found[0].fixes for text in (fix.note, *fix.commands)]
    assert words in "\n".join([found[0].what, *printed])
    assert not troubles(examine_all(well, only=[check_id]))


def test_a_healthy_cluster_has_no_trouble():
    assert not troubles(examine_all(cluster()))


def test_what_nobody_looked_at_is_not_called_fine():
    alone = Examination(machines=(machine("oak"),), absent={"ash": MissingAnswer(why="no answer")})
    assert [one.id for one in examine_all(alone) if one.id in CLUSTER_CHECKS] == ["peer-silent", "missing-machines"]
    silent, mtu = examine_all(alone, only=["mtu"])  # why it was not is said unasked
    assert (silent.id, silent.machine) == ("peer-silent", "ash")
    assert (mtu.status, mtu.what) == (UNKNOWN, "not looked at, since ash gives no answer")


def test_reject_and_drop_are_told_apart():
    (dropped,) = troubles(examine_all(cluster(*blocked("oak", "ash"), machines=GUARDED)))
    (rejected,) = troubles(examine_all(cluster(*blocked("oak", "ash", REFUSED), machines=GUARDED)))
    assert "drops" in dropped.what
    assert "rejects" in rejected.what


def test_wifi_that_keeps_its_guests_apart_is_no_firewall():
    wireless = replace(machine("ash"), interfaces=(replace(machine("ash").interfaces[0], kind=WIRELESS),))
    seen = cluster(*blocked("oak", "ash", UNREACHABLE), machines=[wireless])
    (found,) = troubles(examine_all(seen, only=["gate-closed"]))
    assert "client isolation" in found.fixes[0].note


def test_windows_firewall_is_opened_in_front_of_a_mirrored_wsl():
    (found,) = troubles(examine_all(cluster(*blocked("oak", "ash"), machines=WSL)))
    commands = [command for fix in found.fixes for command in fix.commands]
    assert any("New-NetFirewallHyperVRule" in one and "-LocalPorts 29500" in one for one in commands)


def test_a_pair_that_the_host_relays_trains_and_is_told_how_to_do_without():
    relayed = [link(a, b, way="relayed") for a, b in (("oak", "ash"), ("ash", "oak"))]
    (found,) = troubles(examine_all(cluster(*relayed, machines=GUARDED)))
    assert (found.id, found.machine, found.status) == ("gate-closed", "ash", WARN)
    assert "tcp dport 29500" in found.fixes[0].commands[0]


def test_a_gate_on_another_port_gets_a_rule_for_that_port():
    (found,) = troubles(examine_all(cluster(*blocked("oak", "ash"), machines=GUARDED, ports={"ash": 29507})))
    assert "tcp dport 29507 accept" in found.fixes[0].commands[0]


def test_a_wall_on_the_way_out_is_the_sources():
    chain = Chain(family="inet", table="filter", name="output", may_block=True, hook="output")
    walled = machine("oak", firewall=Firewall(tools=("nftables",), chains=(chain,)))
    (found,) = troubles(examine_all(cluster(*blocked("oak", "ash"), machines=[walled])))
    assert found.machine == "oak"
    assert "ip daddr '{ 192.168.1.11 }' tcp dport 29500" in found.fixes[0].commands[0]


def test_another_program_in_the_place_of_a_machine_is_named():
    (found,) = troubles(examine_all(cluster(link("oak", "ash", STRANGER), link("ash", "oak", SILENT))))
    assert (found.machine, found.what) == ("ash", "something else than ash answers oak at port 29500")


def test_a_connection_that_stalls_is_not_a_closed_gate():
    seen = cluster(link("oak", "ash", bytes_per_s=None, loses_large_packets=True), link("ash", "oak", STALLED))
    assert [one.id for one in troubles(examine_all(seen))] == ["mtu"]


def test_one_machine_behind_a_narrow_way_gets_one_fix():
    pairs = [("oak", "elm"), ("elm", "oak"), ("ash", "elm"), ("elm", "ash")]
    narrow = [link(a, b, bytes_per_s=None, loses_large_packets=True) for a, b in pairs]
    (found,) = troubles(examine_all(cluster(*narrow)))
    assert found.machine == "elm"
    assert "between elm and ash and oak" in found.what
    assert [fix.commands for fix in found.fixes] == [("sudo ip link set dev enp4s0 mtu 1280",)]


def test_no_fix_is_told_twice_whatever_loses_packets():
    lossy = {"bytes_per_s": None, "loses_large_packets": True}
    everywhere = [link(a, b, **lossy) for a in ADDRESSES for b in ADDRESSES if a != b]
    fixes = [(fix.machine, fix.commands) for one in troubles(examine_all(cluster(*everywhere))) for fix in one.fixes]
    assert len(fixes) == len(set(fixes)) == len(ADDRESSES)


@pytest.mark.parametrize(
    ("tool", "first"),
    [
        ("ufw", "sudo ufw allow from 192.168.1.10 to any port 29500 proto tcp"),
        ("firewalld", "sudo firewall-cmd --permanent --add-rich-rule="),
        ("iptables", "sudo iptables --insert INPUT --source 192.168.1.10"),
    ],
)
def test_the_rule_is_for_the_firewall_that_runs(tool, first):
    guarded = machine("ash", firewall=Firewall(tools=(tool,)))
    (found,) = troubles(examine_all(cluster(*blocked("oak", "ash"), machines=[guarded])))
    fix = next(fix for fix in found.fixes if fix.machine == "ash")
    assert fix.commands[0].startswith(first)
    assert fix.undo
