"""The lab's decisions, without a lab: cgroup v1 and v2, network commands, what is missing, which lab is meant."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import FirewallRule, LabError, attach, cgroup_layout, parse_cluster, wiring
from lab.cgroup_layout import Place, Write
from lab.namespaces import ProcessId
from lab.record import LabRecord, MachineRecord, free_name
from lab.requirements import Facts, find_missing

THIS_BOX = """\
cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0
cgroup /sys/fs/cgroup/cpuacct cgroup rw,relatime,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/freezer cgroup rw,relatime,freezer 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
"""
OLD_UBUNTU = """\
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,nodev,noexec,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,nosuid,nodev,noexec,relatime,cpuset 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,nodev,noexec,relatime,memory 0 0
cgroup /sys/fs/cgroup/freezer cgroup rw,nosuid,nodev,noexec,relatime,freezer 0 0
"""
TODAY = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate,memory_recursiveprot 0 0\n"


def test_v1_hierarchies_are_found_where_they_are_mounted() -> None:
    layout = cgroup_layout.find_layout(THIS_BOX, {"/sys/fs/cgroup/unified": "hugetlb\n"})
    assert layout == {
        name: Place(root=f"/sys/fs/cgroup/{name}", version=1) for name in ("cpu", "cpuacct", "memory", "freezer")
    }
    together = cgroup_layout.find_layout(OLD_UBUNTU, {"/sys/fs/cgroup/unified": ""})
    assert together["cpu"] == together["cpuacct"] == Place(root="/sys/fs/cgroup/cpu,cpuacct", version=1)
    assert cgroup_layout.v2_switches(together, "pair") == []
    assert cgroup_layout.member_dirs(together, "pair", "oak") == [
        "/sys/fs/cgroup/cpu,cpuacct/potluck-lab-pair/oak",
        "/sys/fs/cgroup/memory/potluck-lab-pair/oak",
        "/sys/fs/cgroup/freezer/potluck-lab-pair/oak",
    ]


def test_v2_is_one_directory_whose_controllers_are_switched_on_from_the_top() -> None:
    assert cgroup_layout.v2_mounts(TODAY) == ["/sys/fs/cgroup"]
    layout = cgroup_layout.find_layout(TODAY, {"/sys/fs/cgroup": "cpuset cpu io memory hugetlb pids\n"})
    assert set(layout) == {"cpu", "cpuacct", "memory", "freezer"}
    assert cgroup_layout.member_dirs(layout, "pair", "oak") == ["/sys/fs/cgroup/potluck-lab-pair/oak"]
    assert cgroup_layout.v2_switches(layout, "pair") == [
        Write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu"),
        Write("/sys/fs/cgroup/potluck-lab-pair/cgroup.subtree_control", "+cpu"),
        Write("/sys/fs/cgroup/cgroup.subtree_control", "+memory"),
        Write("/sys/fs/cgroup/potluck-lab-pair/cgroup.subtree_control", "+memory"),
    ]


def test_a_container_without_controllers_shows_as_such() -> None:
    layout = cgroup_layout.find_layout(TODAY, {"/sys/fs/cgroup": "pids\n"})
    assert set(layout) == {"cpuacct", "freezer"}


@given(st.floats(min_value=0.001, max_value=1024))
def test_a_quota_is_what_was_asked_for_and_what_the_kernel_takes(cores: float) -> None:
    quota_us, period_us = cgroup_layout.cpu_quota(cores)
    assert quota_us / period_us == pytest.approx(cores, rel=0.06)
    assert quota_us >= 1_000
    assert 1_000 <= period_us <= 1_000_000
    assert period_us == 10_000 or cores < 0.1


def test_both_versions_write_the_same_limits() -> None:
    assert cgroup_layout.cpu_writes(1, 0.3) == [
        Write("cpu.cfs_burst_us", "0"),
        Write("cpu.cfs_period_us", "10000"),
        Write("cpu.cfs_quota_us", "3000"),
        Write("cpu.cfs_burst_us", "2000"),
        Write("cpu.shares", "307"),
    ]
    assert cgroup_layout.cpu_writes(2, 0.3) == [
        Write("cpu.max.burst", "0"),
        Write("cpu.max", "3000 10000"),
        Write("cpu.max.burst", "2000"),
        Write("cpu.weight", "30"),
    ]
    assert [write.value for write in cgroup_layout.memory_writes(1, 4096)] == ["4096", "4096"]
    assert cgroup_layout.memory_writes(2, 4096) == [Write("memory.max", "4096"), Write("memory.swap.max", "0")]
    assert cgroup_layout.memory_writes(1, None)[0].file == "memory.memsw.limit_in_bytes"
    assert cgroup_layout.memory_writes(2, None)[0] == Write("memory.max", "max")
    assert cgroup_layout.freezer_write(1, frozen=True) == Write("freezer.state", "FROZEN")
    assert cgroup_layout.freezer_write(2, frozen=False) == Write("cgroup.freeze", "0")


def test_both_versions_read_the_same_use() -> None:
    assert cgroup_layout.frozen_from(1, "FROZEN\n")
    assert not cgroup_layout.frozen_from(1, "FREEZING\n")
    assert cgroup_layout.frozen_from(2, "populated 1\nfrozen 1\n")
    assert not cgroup_layout.frozen_from(2, "populated 1\nfrozen 0\n")
    assert cgroup_layout.cpu_seconds_from(1, "1500000000\n") == 1.5
    assert cgroup_layout.cpu_seconds_from(2, "usage_usec 1500000\nuser_usec 1\n") == 1.5
    assert cgroup_layout.oom_kills_from("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n") == 3
    assert cgroup_layout.oom_kills_from("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n") == 1
    assert cgroup_layout.cores_from("3000\n 10000\n") == 0.3
    assert cgroup_layout.cores_from("3000 10000\n") == 0.3
    assert cgroup_layout.memory_limit_from("9223372036854771712\n") is None
    assert cgroup_layout.memory_limit_from("max\n") is None
    assert cgroup_layout.memory_limit_from("4096\n") == 4096


CLUSTER = parse_cluster(
    """
machines:
  - {name: rosa, cores: 1, link: 1gbit, interfaces: [{name: wlan0, kind: link, network: wifi, link: 54mbit}]}
  - {name: lily, cores: 1, own_name: address, hostname: lily-laptop, resolves: false}
  - {name: fern, cores: 1, own_name: missing, interfaces: [{name: wlan0, kind: link, network: wifi}]}
""",
    source="test",
    name="test",
)
PORTS = wiring.plan_ports(CLUSTER)
ADDRESSES = wiring.addresses_of(PORTS)


def test_every_link_has_a_port_and_an_address_of_its_network() -> None:
    assert ADDRESSES == {"rosa": ("10.77.0.1", "10.77.1.1"), "lily": ("10.77.0.2",), "fern": ("10.77.0.3", "10.77.1.3")}
    assert [port.name for port in PORTS] == ["port1", "port2", "port3", "port4", "port5"]


def test_hosts_files_hold_what_was_declared() -> None:
    rosa, lily, fern = (wiring.hosts_file(machine, CLUSTER, ADDRESSES) for machine in CLUSTER.machines)
    assert "127.0.1.1 rosa\n10.77.0.2 lily-laptop lily\n10.77.0.3 fern\n" in rosa
    assert lily.endswith("10.77.0.2 lily-laptop\n")
    assert "127.0.1.1" not in lily
    assert "fern" not in fern
    assert "10.77.0.1 rosa\n" in fern


def test_a_bucket_is_a_millisecond_and_never_less_than_two_frames() -> None:
    assert "rate 1000000000bit burst 125000 latency 50ms" in wiring.rate_batch("eth0", 10**9, 1500)
    assert "rate 100000000bit burst 12500 latency" in wiring.rate_batch("eth0", 10**8, 1500)
    assert "rate 1000000bit burst 3028 latency" in wiring.rate_batch("eth0", 10**6, 1500)


def test_firewall_rules_become_nftables_in_debians_table() -> None:
    rules = (
        FirewallRule(action="drop", protocol="tcp", ports="1024-65535", peer="rosa"),
        FirewallRule(action="reject", direction="out", protocol="udp", peer="fern"),
        FirewallRule(action="drop", protocol="icmp", abrupt=True),
    )
    script = wiring.firewall_script(rules, ADDRESSES)
    incoming, outgoing = script.split("chain output")
    assert incoming.index("meta l4proto icmp drop") < incoming.index("ct state established,related accept")
    assert incoming.index("ct state") < incoming.index("ip saddr { 10.77.0.1, 10.77.1.1 } tcp dport 1024-65535 drop")
    assert "ip daddr { 10.77.0.3, 10.77.1.3 } meta l4proto udp reject" in outgoing
    assert wiring.firewall_script((), ADDRESSES) == "add table inet filter\ndelete table inet filter\n"


FINE = Facts(
    system="linux",
    is_root=True,
    is_contained=False,
    tools=("ip", "tc", "nsenter", "nft"),
    controllers=("cpu", "cpuacct", "memory", "freezer"),
)
LACKING = [
    (replace(FINE, system="darwin", is_root=False), "needs Linux, this is darwin", "WSL2"),
    (replace(FINE, is_root=False, is_contained=True), "needs root", "sudo python -m lab"),
    (replace(FINE, is_contained=True), "needs CAP_SYS_ADMIN", "--privileged --cgroupns=host"),
    (replace(FINE, tools=("ip", "nsenter")), "tc, nft", "iproute2 nftables"),
    (replace(FINE, controllers=("freezer", "cpuacct")), "cgroup controllers cpu, memory", "--privileged"),
]


@pytest.mark.parametrize(("facts", "what", "fix"), LACKING)
def test_what_is_missing_is_said_in_one_line(facts: Facts, what: str, fix: str) -> None:
    error = find_missing(facts, firewall=True)
    assert error is not None
    assert what in error.args[0]
    assert fix in error.fix
    assert "\n" not in error.args[0] + error.fix


def test_a_lab_without_firewalls_does_not_need_nft() -> None:
    assert find_missing(FINE, firewall=True) is None
    assert find_missing(replace(FINE, tools=("ip", "tc", "nsenter")), firewall=False) is None


def lab_record(name: str, *machines: str) -> LabRecord:
    return LabRecord(
        name=name,
        cluster=name,
        owner=ProcessId(pid=1, start_ticks=1),
        boot_id="",
        layout={},
        cgroup_dirs=(),
        machines=tuple(MachineRecord(name=machine, ports=()) for machine in machines),
    )


def test_the_lab_and_machine_that_are_meant_are_found_or_asked_for() -> None:
    pair, laptops = lab_record("pair", "oak", "elm"), lab_record("laptops", "rosa", "lily")
    second = lab_record("laptops-2", "rosa", "lily")
    with pytest.raises(LabError, match="no lab is up\n  fix: start one in another terminal"):
        attach.find_machine([], "lily", None)
    with pytest.raises(LabError, match="did you mean 'lily'"):
        attach.find_machine([laptops], "lilly", None)
    with pytest.raises(LabError, match="2 labs that are up have a 'lily'\n  fix: say which with --lab: laptops, "):
        attach.find_machine([laptops, second], "lily", None)
    with pytest.raises(LabError, match="no lab called 'laptop' is up\n  fix: did you mean 'laptops'"):
        attach.find_lab([pair, laptops], "laptop")
    with pytest.raises(LabError, match="2 labs are up\n  fix: say which with --lab: pair, laptops"):
        attach.find_lab([pair, laptops], None)
    assert attach.find_lab([pair, laptops], "pair") is pair


def test_names_of_labs_do_not_clash(tmp_path: Path) -> None:
    assert free_name("pair", tmp_path) == "pair"
    (tmp_path / "pair.json").touch()
    (tmp_path / "pair-2.json").touch()
    assert free_name("pair", tmp_path) == "pair-3"


def test_a_process_id_knows_its_process_from_a_later_one() -> None:
    mine = ProcessId.of(os.getpid())
    assert mine.is_alive()
    assert not ProcessId(pid=mine.pid, start_ticks=mine.start_ticks - 1).is_alive()


def test_the_lab_does_not_need_potluck_or_torch() -> None:
    code = "import lab.cli, sys; print([name for name in sys.modules if name in ('potluck', 'torch')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
