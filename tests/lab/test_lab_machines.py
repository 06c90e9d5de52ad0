"""A machine is what its cluster file says: names, interfaces, disks, firewall, and processes of its own."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import FirewallRule, Lab, LabError, Machine, parse_cluster
from lab.cgroup_layout import LAB_DIR_PREFIX, Place
from lab.cgroups import MachineCgroup, kill_all

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(60)]

CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1.5)
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""


def lab_of(text: str) -> Lab:
    return Lab(parse_cluster(text, source="test", name="test"))


def listen(machine: Machine, port: int) -> None:
    code = f"import socket, time; server = socket.create_server(('', {port})); print('listening'); time.sleep(1000)"
    machine.start([sys.executable, "-c", code]).expect("listening", 10)


def connect(machine: Machine, address: str, port: int) -> str:
    return machine.run([sys.executable, "-c", CONNECT, address, str(port)]).output


def resolve(machine: Machine, name: str) -> str:
    """What programs get for a name, or nothing."""
    return " ".join(machine.run(["getent", "ahostsv4", name]).output.split()[:1])


def test_names_are_as_on_debian_and_resolve_as_declared() -> None:
    text = """
machines:
  - {name: rosa, cores: 0.5}
  - {name: lily, cores: 0.5, own_name: address, resolves: [rosa]}
  - {name: fern, cores: 0.5, own_name: missing, resolves: false}
  - {name: twin, cores: 0.5, hostname: rosa}
"""
    with lab_of(text) as lab:
        rosa, lily, fern, twin = lab.machines
        assert [machine.run(["hostname"]).output for machine in lab.machines] == ["rosa", "lily", "fern", "rosa"]
        assert resolve(rosa, "rosa") == "127.0.1.1"
        assert resolve(lily, "lily") == lily.address
        assert resolve(fern, "fern") == ""
        assert resolve(rosa, "lily") == lily.address
        assert resolve(lily, "rosa") == rosa.address
        assert resolve(lily, "fern") == ""
        began_s = time.monotonic()
        unknown = fern.run([sys.executable, "-c", "import socket; socket.getaddrinfo('rosa', 80)"])
        assert "Temporary failure in name resolution" in unknown.output
        assert time.monotonic() - began_s < 2.0
        assert twin.run(["cat", "/etc/hostname"]).output == "rosa"
        # Its own to edit, in place or by rename, and nobody else's.
        fern.run(["sh", "-c", f"echo {rosa.address} rosa >> /etc/hosts && sed -i s/localhost/home/ /etc/hosts"])
        assert resolve(fern, "rosa") == rosa.address
        assert "home" not in Path("/etc/hosts").read_text()


def test_interfaces_are_as_declared() -> None:
    text = """
machines:
  - name: rosa
    cores: 0.5
    mtu: 1400
    interfaces:
      - {name: docker0, kind: bridge, address: 172.17.0.1/16}
      - {name: wlan0, kind: link, network: wifi, link: 50mbit}
  - {name: lily, cores: 0.5, interfaces: [{name: wlan0, kind: link, network: wifi}]}
  - {name: fern, cores: 0.5, interfaces: [{name: docker0, kind: bridge, address: 172.17.0.1/16}]}
"""
    with lab_of(text) as lab:
        rosa, lily, fern = lab.machines
        shown = {line.split()[0].split("@")[0]: line for line in rosa.run(["ip", "-br", "addr"]).output.split("\n")}
        assert set(shown) == {"lo", "docker0", "eth0", "wlan0"}
        assert "DOWN" in shown["docker0"]
        assert "172.17.0.1/16" in shown["docker0"]
        assert f"{rosa.address}/24" in shown["eth0"]
        assert "mtu 1400" in rosa.run(["ip", "link", "show", "eth0"]).output
        assert sorted(rosa.run(["ls", "/sys/class/net"]).output.split()) == sorted(shown)
        listen(lily, 5000)
        assert connect(rosa, lily.address_on("wlan0"), 5000) == "connected"
        assert connect(fern, lily.address_on("wlan0"), 5000) != "connected"
        assert connect(rosa, "172.17.0.1", 5000) == "ConnectionRefusedError"
        lily.cut("wlan0")
        assert connect(rosa, lily.address_on("wlan0"), 5000) != "connected"
        assert connect(rosa, lily.address, 5000) == "connected"
        with pytest.raises(LabError, match="did you mean 'wlan0'"):
            lily.cut("wlan1")


def test_a_firewall_blocks_one_direction_and_lets_answers_pass() -> None:
    text = """
machines:
  - {name: rosa, cores: 0.5}
  - name: lily
    cores: 0.5
    firewall: [{action: drop, protocol: tcp, ports: 1024-65535, peer: rosa}]
  - name: fern
    cores: 0.5
    firewall: [{action: reject, direction: out, protocol: tcp, ports: 5000}]
"""
    with lab_of(text) as lab:
        rosa, lily, fern = lab.machines
        for machine in lab.machines:
            listen(machine, 5000)
        assert connect(rosa, lily.address, 5000) == "TimeoutError"
        assert connect(lily, rosa.address, 5000) == "connected"
        assert connect(fern, lily.address, 5000) == "ConnectionRefusedError"
        assert connect(rosa, fern.address, 5000) == "connected"
        assert rosa.run(["ping", "-c", "1", "-W", "2", lily.address]).returncode == 0
        # A fix as a person would type it on Debian works.
        fix = ["nft", "insert", "rule", "inet", "filter", "input", "ip", "saddr", rosa.address, "accept"]
        assert lily.run(fix).returncode == 0
        assert connect(rosa, lily.address, 5000) == "connected"
        rosa.set_firewall([FirewallRule(action="reject", protocol="tcp", ports="5000")])
        assert connect(lily, rosa.address, 5000) == "ConnectionRefusedError"
        rosa.set_firewall([])
        assert connect(lily, rosa.address, 5000) == "connected"
        with pytest.raises(LabError, match="did you mean 'fern'"):
            rosa.set_firewall([FirewallRule(action="drop", peer="ferm")])


def test_shared_memory_and_disks_are_small_where_declared(tmp_path: Path) -> None:
    text = f"""
machines:
  - {{name: rosa, cores: 1, memory: 1G, shm: 8M, disks: [{{path: {tmp_path}, size: 4M}}]}}
  - {{name: lily, cores: 1, memory: 1G}}
"""
    with lab_of(text) as lab:
        rosa, lily = lab.machines
        sizes = [machine.run(["df", "--output=size", "/dev/shm"]).output.split()[1] for machine in lab.machines]
        assert sizes == ["8192", str(512 * 1024)]
        full = rosa.run(["dd", "if=/dev/zero", f"of={tmp_path}/big", "bs=1M", "count=10"])
        assert "No space left on device" in full.output
        assert lily.run(["dd", "if=/dev/zero", f"of={tmp_path}/big", "bs=1M", "count=10"]).returncode == 0
        assert (tmp_path / "big").stat().st_size == 10 * 2**20
    missing = f"machines: [{{name: rosa, cores: 1, disks: [{{path: {tmp_path}/none, size: 4M}}]}}]"
    with pytest.raises(LabError, match=r"which is no directory\n  fix: mkdir -p"):
        lab_of(missing).__enter__()


def test_a_machine_sees_its_own_processes_and_its_own_limits() -> None:
    outside = subprocess.Popen(["sleep", "1000"])
    try:
        with Lab("laptops") as lab:
            lily = lab["lily"]
            mine = lily.start(["sleep", "999"])
            elsewhere = lab["rosa"].start(["sleep", "998"])
            seen = lily.run(["ps", "ax", "-o", "args"]).output
            assert "sleep 999" in seen
            assert "sleep 998" not in seen
            assert "sleep 1000" not in seen
            assert lily.run(["pkill", "sleep"]).returncode == 0
            assert mine.wait(5) == -signal.SIGTERM
            assert elsewhere.returncode is None
            assert f"{LAB_DIR_PREFIX}{lab.name}/lily" in lily.run(["cat", "/proc/self/cgroup"]).output
            assert lily.usage().sent_bytes >= 0
        assert outside.poll() is None
    finally:
        outside.kill()
        outside.wait()


def test_an_orphan_is_buried() -> None:
    with Lab("laptops") as lab:
        lab["lily"].run(["sh", "-c", "(sleep 0.1 &)"])
        time.sleep(0.4)
        assert "defunct" not in lab["lily"].run(["ps", "ax"]).output


def test_an_unknown_machine_is_refused_with_the_closest_name() -> None:
    with Lab("laptops") as lab, pytest.raises(LabError, match="did you mean 'lily'"):
        lab["lilly"]


@pytest.mark.skipif(not Path("/sys/fs/cgroup/unified/cgroup.procs").exists(), reason="no second cgroup v2 mount here")
def test_freezing_and_killing_work_on_cgroup_v2() -> None:
    # This kernel keeps cpu and memory in v1; freezing and killing are part of v2 itself and can be tried.
    root = Path("/sys/fs/cgroup/unified")
    lab_dir = root / f"{LAB_DIR_PREFIX}v2-try"
    group = MachineCgroup(layout={"freezer": Place(root=str(root), version=2)}, lab="v2-try", machine="lily")
    lab_dir.mkdir()
    (lab_dir / "lily").mkdir()
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(3)]
    try:
        for sleeper in sleepers:
            (lab_dir / "lily" / "cgroup.procs").write_text(str(sleeper.pid))
        assert sorted(group.processes()) == sorted(sleeper.pid for sleeper in sleepers)
        assert not group.is_frozen()
        group.freeze()
        assert group.is_frozen()
        group.thaw()
        assert not group.is_frozen()
        group.freeze()
        kill_all(lab_dir / "lily")
        assert [sleeper.wait(5) for sleeper in sleepers] == [-signal.SIGKILL] * 3
        assert not group.is_frozen()
        group.freeze()  # also with nobody there
        group.thaw()
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
        (lab_dir / "lily").rmdir()
        lab_dir.rmdir()
