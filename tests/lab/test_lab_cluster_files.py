"""Cluster files: what ships, what can be declared, and errors that name the key and the file."""

from pathlib import Path

import pytest

from lab import Lab, LabError, load_cluster, parse_cluster
from lab.cluster import DeadEnd, Link, Uplink
from lab.cluster_file import shipped_clusters
from lab.quantities import rate_bits_per_s, show_size, size_bytes
from lab.wiring import plan_ports

EVERYTHING = """
machines:
  - name: rosa
    cores: 0.5
    memory: 512M
    link: 100mbit
    mtu: 1400
    hostname: Rosas-PC
    resolves: [lily]
    own_name: address
    shm: 64M
    disks: [{path: /mnt, size: 10M}]
    interfaces:
      - {name: docker0, kind: bridge, address: 172.17.0.1/16}
      - {name: wlan0, kind: link, network: wifi, link: 54mbit}
    firewall:
      - {action: drop, protocol: tcp, ports: 1024-65535, peer: lily}
  - {name: lily, cores: 2, resolves: false}
"""


def test_shipped_clusters_are_those_that_the_benchmarks_name() -> None:
    assert shipped_clusters() == [
        "bridge",
        "crawl",
        "dsl",
        "guarded",
        "laptops",
        "mixed",
        "nat",
        "oneway",
        "pair",
        "twins",
        "uplink",
        "wifi",
    ]
    cores = {name: [machine.cores for machine in load_cluster(name).machines] for name in shipped_clusters()}
    assert cores["pair"] == [1.0, 0.3]
    assert cores["laptops"] == cores["wifi"] == cores["dsl"] == cores["crawl"] == [0.8, 0.4, 0.2]
    assert [machine.name for machine in load_cluster("laptops").machines] == ["rosa", "lily", "fern"]
    rates = {
        name: {link.rate_bits_per_s for machine in load_cluster(name).machines for link in machine.links}
        for name in shipped_clusters()
    }
    assert rates == {
        "pair": {10**9},
        "laptops": {10**9},
        "mixed": {10**9},
        "twins": {10**9},
        "wifi": {10**8},
        "dsl": {2 * 10**7},
        "crawl": {10**7},
        "uplink": {10**9},
        **{key: {10**9} for key in ("bridge", "guarded", "nat", "oneway")},
    }


def test_uplink_is_two_homes_with_one_slow_way_between_them() -> None:
    uplink = load_cluster("uplink")
    homes = [machine.links[0].network for machine in uplink.machines]
    assert homes == ["lan", "lan", "far", "far"]
    assert uplink.uplinks == (Uplink(networks=("lan", "far"), rate_bits_per_s=2 * 10**7),)
    assert uplink.cores == pytest.approx(1.7)
    assert [port.address for port in plan_ports(uplink)] == [f"10.77.0.{number}/24" for number in (1, 2, 3, 4)]


def test_mixed_has_the_proportions_of_the_four_machines_it_stands_for() -> None:
    mixed = load_cluster("mixed")
    assert mixed.cores == pytest.approx(1.7, abs=0.001)
    speeds = (256, 180, 45, 40)
    assert [machine.cores / mixed.cores for machine in mixed.machines] == [
        pytest.approx(speed / sum(speeds), rel=0.002) for speed in speeds
    ]


def test_everything_that_can_be_declared_arrives() -> None:
    rosa, lily = parse_cluster(EVERYTHING, source="test", name="test").machines
    assert (rosa.cores, rosa.memory_bytes, rosa.shm_bytes, rosa.hostname) == (0.5, 2**29, 2**26, "Rosas-PC")
    assert rosa.links == (
        Link(interface="eth0", network="lan", rate_bits_per_s=10**8, mtu=1400),
        Link(interface="wlan0", network="wifi", rate_bits_per_s=54 * 10**6, mtu=1500),
    )
    assert rosa.dead_ends == (DeadEnd(interface="docker0", address="172.17.0.1/16"),)
    assert (rosa.resolves, lily.resolves) == (("lily",), ())
    assert (rosa.firewall[0].action, rosa.firewall[0].ports, rosa.firewall[0].peer) == ("drop", "1024-65535", "lily")
    assert lily.links[0].rate_bits_per_s is None


WRONG = {
    "machines: [{name: a, coers: 1}]": ("machines[0].coers is not a key", "did you mean 'cores'?"),
    "machins: []": ("machins is not a key", "did you mean 'machines'?"),
    "machines: [{name: a}]": ("machines[0].cores is missing", "add cores: ... there"),
    "machines: [{name: a, cores: fast}]": ("machines[0].cores: input should be a valid number", "docs/lab.md"),
    "machines: [{name: a, cores: 0}]": ("machines[0].cores: input should be greater", "docs/lab.md"),
    "machines: [{name: A_B, cores: 1}]": ("machines[0].name: 'A_B' does not fit here", "small letters"),
    "machines: [{name: a, cores: 1, link: 1gb}]": ("'1gb' is not a link rate: write it as 1gbit", "docs/lab.md"),
    "machines: [{name: a, cores: 1, memory: lots}]": ("'lots' is not a number with a unit", "docs/lab.md"),
    "machines: [{name: a, cores: 1}, {name: a, cores: 1}]": ("'a' is there twice", "rename one"),
    "machines: [{name: a, cores: 1, cores: 2}]": ("the key 'cores' is there twice", "mend that line"),
    "machines: [{name: rosa, cores: 1, resolves: [rsa]}]": ("speaks of 'rsa'", "did you mean 'rosa'?"),
    "machines: [{name: a, cores: 1, disks: [{path: /mnt, sise: 1M}]}]": (
        "machines[0].disks[0].sise is not a key",
        "did you mean 'size'?",
    ),
    "machines: [{name: a, cores: 1, firewall: [{action: drop, ports: 80}]}]": (
        "machines[0].firewall[0]: ports need protocol: tcp",
        "docs/lab.md",
    ),
    "machines: [{name: a, cores: 1, firewall: [{action: drop, protocol: tcp, ports: 80-x}]}]": (
        "'80-x' is not a port or a range",
        "docs/lab.md",
    ),
    "machines: [{name: a, cores: 1, interfaces: [{name: docker0, kind: bridge}]}]": (
        "a bridge takes an address",
        "docs/lab.md",
    ),
    "machines: [{name: a, cores: 1, interfaces: [{name: eth0, kind: link, network: x}]}]": (
        "every machine has eth0 already",
        "docs/lab.md",
    ),
    "machines: [{name: a, cores: 1, network: far}]": (
        "no uplink joins 'far' to 'lan'",
        "add uplinks: [{networks: [lan",
    ),
    "machines: [{name: a, cores: 1, network: far, behind: b}]": ("a is on the network behind b", "remove network:"),
    "{machines: [{name: a, cores: 1, network: far}], uplinks: [{networks: [lan, fra]}]}": (
        "uplinks[0].networks: no machine's eth0 is on 'fra'",
        "did you mean 'far'?",
    ),
    "{machines: [{name: a, cores: 1, network: far}], uplinks: [{networks: [lan, far]}, {networks: [far, lan]}]}": (
        "uplinks[1].networks: far and lan are joined already",
        "remove this uplink",
    ),
    "{machines: [{name: a, cores: 1}], uplinks: [{network: [lan, far]}]}": (
        "uplinks[0].network is not a key",
        "did you mean 'networks'?",
    ),
    "machines: [": ("is not YAML", "mend that line"),
    "": ("holds no machines", "begin the file with machines:"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_is_refused_with_the_key_the_file_and_the_fix(text: str) -> None:
    what, fix = WRONG[text]
    with pytest.raises(LabError) as caught:
        parse_cluster(text, source="my/cluster.yaml", name="cluster")
    assert what in caught.value.args[0]
    assert "my/cluster.yaml" in caught.value.args[0]
    assert fix in caught.value.fix


def test_a_cluster_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="did you mean 'laptops'"):
        load_cluster("laptop")
    with pytest.raises(LabError, match="No such file") as caught:
        load_cluster(tmp_path / "none.yaml")
    assert "bridge, crawl, dsl, guarded, laptops, mixed, nat, oneway, pair, twins, uplink, wifi" in caught.value.fix


def test_a_lab_is_not_called_what_a_path_cannot_hold() -> None:
    with pytest.raises(LabError, match=r"a lab cannot be called '\.\./\.\./etc'"):
        Lab("pair", name="../../etc")


def test_quantities_read_as_people_write_them() -> None:
    assert [rate_bits_per_s(text) for text in ("1gbit", "1.5mbit", "20Mbit")] == [10**9, 1_500_000, 2 * 10**7]
    assert [size_bytes(text) for text in ("2G", "512MB", "1KiB", "7")] == [2**31, 2**29, 1024, 7]
    assert [show_size(size) for size in (2**31, 2**29, 1.5 * 2**30, 7)] == ["2G", "512M", "1.5G", "7"]
