"""Every check of one machine: what makes it speak up, and a near miss that must stay silent."""

import msgspec
import pytest
from msgspec.structs import replace

from potluck.doctor.checks.catalogue import MACHINE_CHECKS, examine_machine
from potluck.doctor.checks.quick import quick_failures
from potluck.doctor.examination import IntendedRun, Peer
from potluck.doctor.finding import FAIL, OK, WARN
from potluck.doctor.firewall_fixes import open_for
from potluck.machine.adapters import with_adapters
from potluck.machine.facts import CardProgram, Facts, ForwardedPort, Gpu, Interface, Listener, Power, Resolved, Space
from tests.unit.doctor.snapshots import NAMES, knowing, snapshot, troubles, with_variables

DESKTOP, GPU = snapshot("desktop"), snapshot("gpu_desktop")
NAT, MIRRORED, WIFI_FIRST = snapshot("wsl2_nat"), snapshot("wsl2_mirrored"), snapshot("wsl2_mirrored_wifi_first")
WINDOWS_10, LAB = snapshot("wsl2_windows10"), snapshot("lab_machine_with_firewall")
MIB, GIB = 2**20, 2**30
DOCKER0 = Interface(name="docker0", kind="bridge", has_carrier=False, addresses=("172.17.0.1/16",))
WITH_DOCKER0 = replace(DESKTOP, interfaces=(*DESKTOP.interfaces, DOCKER0))
LAUNCH = {"MASTER_ADDR": "192.168.1.10", "RANK": "0", "WORLD_SIZE": "2"}


def of_windows(facts, **more):
    """The WSL machine, on a Windows with these properties."""
    return replace(facts, windows=replace(facts.windows, **more))


def sleepy(facts):
    return of_windows(facts, adapters=tuple(replace(one, may_sleep=True) for one in facts.windows.adapters))


def forwarding(facts, address, port=29500):
    rule = ForwardedPort(listen_address="0.0.0.0", listen_port=port, connect_address=address, connect_port=port)
    return of_windows(facts, forwarded_ports=(rule,))


def shm(size):
    return Space(folder="/dev/shm", free_bytes=size, total_bytes=size)


def disk(size, **more):
    return Space(folder="/data/experiments", free_bytes=size, total_bytes=100 * GIB, **more)


def on_card(facts=GPU, **more):
    """The machine, with these facts about its card."""
    return replace(facts, gpus=(replace(GPU.gpus[0], **more),))


# id: (a machine that has it, how bad, words of the finding or its fix, a machine that nearly has it)
CASES = {
    "torch-missing": (snapshot("no_torch"), FAIL, "pip install torch", DESKTOP),
    "torch-broken": (snapshot("broken_torch"), FAIL, "libcudart.so.12", snapshot("no_torch")),
    "torchft-missing": (snapshot("no_torch"), FAIL, "torchft", DESKTOP),
    "cuda-missing": (snapshot("gpu_with_cpu_build"), WARN, "CPU build", GPU),
    "no-nccl": (
        replace(GPU, software=replace(GPU.software, torch=replace(GPU.software.torch, nccl=""))),
        WARN,
        "Gloo is used",
        GPU,
    ),
    "arch-mismatch": (snapshot("pascal_with_new_build"), FAIL, "CUDA 12.6", GPU),
    "duplicate-gpu": (
        with_variables(GPU, CUDA_VISIBLE_DEVICES="0,0"),
        FAIL,
        "export CUDA_VISIBLE_DEVICES=0",
        with_variables(GPU, CUDA_VISIBLE_DEVICES="0"),
    ),
    "ifname-invalid": (
        with_variables(DESKTOP, GLOO_SOCKET_IFNAME="^lo"),
        FAIL,
        "export GLOO_SOCKET_IFNAME=enp4s0",
        with_variables(DESKTOP, GLOO_SOCKET_IFNAME="enp4s0"),
    ),
    "nccl-ifname": (
        with_variables(DESKTOP, NCCL_SOCKET_IFNAME="eth0"),
        FAIL,
        "export NCCL_SOCKET_IFNAME==enp4s0",
        with_variables(DESKTOP, NCCL_SOCKET_IFNAME="enp"),
    ),
    "virtual-interface": (
        with_variables(WITH_DOCKER0, GLOO_SOCKET_IFNAME="docker0"),
        FAIL,
        "export GLOO_SOCKET_IFNAME=enp4s0",
        with_variables(WITH_DOCKER0, GLOO_SOCKET_IFNAME="enp4s0"),
    ),
    "no-network": (
        replace(
            DESKTOP, interfaces=(replace(DESKTOP.interfaces[0], is_up=False, has_carrier=False), DESKTOP.interfaces[1])
        ),
        FAIL,
        "sudo ip link set dev enp4s0 up",
        DESKTOP,
    ),
    "loopback": (
        replace(DESKTOP, loopback="cannot assign requested address"),
        FAIL,
        "sudo ip link set dev lo up",
        replace(DESKTOP, loopback=""),
    ),
    "wifi": (snapshot("laptop_wifi_battery"), WARN, "wlp2s0", DESKTOP),
    "link-speed": (snapshot("slow_cable_full_disk"), WARN, "half duplex", DESKTOP),
    "vpn-route": (snapshot("vpn"), WARN, "1380", DESKTOP),
    "hostname-loopback": (
        with_variables(DESKTOP, **LAUNCH),
        WARN,
        "export GLOO_SOCKET_IFNAME=enp4s0",
        DESKTOP,
    ),
    "name-unresolvable": (
        with_variables(knowing(DESKTOP, ash=""), MASTER_ADDR="ash"),
        FAIL,
        "hostname -I",
        with_variables(knowing(DESKTOP, ash="192.168.1.11"), MASTER_ADDR="ash"),
    ),
    "nobody-hosts": (
        with_variables(DESKTOP, MASTER_ADDR="192.168.1.99", RANK="0"),
        FAIL,
        "export MASTER_ADDR=192.168.1.10",
        with_variables(DESKTOP, MASTER_ADDR="192.168.1.99", RANK="1"),
    ),
    "docker-desktop-hosts": (
        with_variables(
            replace(DESKTOP, docker_names=(Resolved(name="kubernetes.docker.internal", addresses=("192.168.1.77",)),)),
            MASTER_ADDR="kubernetes.docker.internal",
        ),
        FAIL,
        "export MASTER_ADDR=192.168.1.10",
        replace(DESKTOP, docker_names=(Resolved(name="kubernetes.docker.internal", addresses=("192.168.1.77",)),)),
    ),
    "ipv6-noise": (
        with_variables(replace(DESKTOP, has_ipv6=False), MASTER_ADDR="fd00::2"),
        FAIL,
        "IPv4 address",
        replace(DESKTOP, has_ipv6=False),
    ),
    "wslconfig-encoding": (snapshot("wsl2_utf16_config"), WARN, "-Encoding ascii", MIRRORED),
    "wsl-wrong-adapter": (WIFI_FIRST, WARN, "-InterfaceMetric 10", MIRRORED),
    "wsl-idle": (WIFI_FIRST, WARN, "instanceIdleTimeout", MIRRORED),
    "network-public-profile": (WIFI_FIRST, WARN, "-NetworkCategory Private", MIRRORED),
    "windows-native": (snapshot("windows_native"), FAIL, "wsl --install -d Ubuntu-24.04", MIRRORED),
    "wsl1": (
        replace(MIRRORED, wsl=replace(MIRRORED.wsl, version=1, distribution="Ubuntu-22.04")),
        FAIL,
        "wsl --set-version 'Ubuntu-22.04' 2",
        MIRRORED,
    ),
    "adapter-power-saving": (
        sleepy(MIRRORED),
        WARN,
        "$a = Get-NetAdapterPowerManagement -Name 'Ethernet'; $a.AllowComputerToTurnOffDevice = 'Disabled'",
        MIRRORED,
    ),
    "portproxy-stale": (
        forwarding(WINDOWS_10, "172.29.99.7"),
        WARN,
        "netsh interface portproxy delete v4tov4 listenport=29500 listenaddress=0.0.0.0",
        forwarding(WINDOWS_10, "172.29.21.83"),
    ),
    "shm-small": (replace(DESKTOP, shm=shm(64 * MIB)), FAIL, "remount,size=1G", replace(DESKTOP, shm=shm(GIB))),
    "disk-full": (
        replace(DESKTOP, disks=(disk(300 * MIB), *DESKTOP.disks)),
        FAIL,
        "export POTLUCK_RUNS_DIR=~/potluck/experiments/experiments",
        replace(DESKTOP, disks=(disk(3 * GIB),)),
    ),
    "battery": (snapshot("laptop_wifi_battery"), WARN, "61 %", replace(DESKTOP, power=Power(percent=61))),
    "throttle": (
        replace(GPU, gpus=(replace(GPU.gpus[0], throttle=("heat",)),)),
        WARN,
        "heat",
        GPU,
    ),
    "card-shared": (
        on_card(used_bytes=3 * GIB, busy=0.9, programs=(CardProgram(pid=7, name="blender", memory_bytes=2 * GIB),)),
        WARN,
        "other programs take 2.0 GiB of 8.0 GiB of the RTX 3070 of ash: blender (process 7, 2.0 GiB)",
        on_card(used_bytes=3 * GIB, busy=0.9, is_training=True, programs=()),
    ),
    "port-in-use": (
        with_variables(replace(DESKTOP, listeners=(Listener(port=29500, process="python3", pid=123),)), RANK="0"),
        FAIL,
        "export MASTER_PORT=29501",
        DESKTOP,
    ),
}


def test_the_port_that_potluck_host_has_is_no_trouble():
    taken = CASES["port-in-use"][0]
    for address, host_port, status in (
        (taken.addresses[0], 29500, OK),
        (taken.addresses[0], 29501, FAIL),
        ("192.0.2.1", 29500, FAIL),
    ):
        (finding,) = examine_machine(taken, IntendedRun(host=address, host_port=host_port), only=["port-in-use"])
        assert finding.status == status


def test_a_machine_that_has_joined_needs_no_other_port():
    taken = replace(DESKTOP, listeners=CASES["port-in-use"][0].listeners)
    assert [one.status for one in examine_machine(taken, only=["port-in-use"])] == [WARN]
    joined = IntendedRun(host="192.0.2.1", host_port=29500)
    assert [one.status for one in examine_machine(taken, joined, only=["port-in-use"])] == [OK]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (NAT, "networkingMode=mirrored"),
        (WINDOWS_10, "netsh interface portproxy add v4tov4 listenport=29500"),
        (WINDOWS_10, "potluck host --advertise 192.168.1.20"),
        (snapshot("docker_bridge"), "--publish 29500:29500"),
    ],
)
def test_only_a_host_must_be_dialled(facts, words):
    """Behind NAT or on a bridge a machine joins and trains; if it is to host, one port has to lead in."""
    (finding,) = examine_machine(facts, only=["cannot-host"])
    assert finding.status == OK
    (finding,) = examine_machine(facts, IntendedRun(is_host=True), only=["cannot-host"])
    assert finding.status == FAIL
    printed = [text for fix in finding.fixes for text in (fix.note, *fix.commands)]
    assert words in "\n".join(printed)
    for well in (DESKTOP, MIRRORED, LAB):
        assert [one.status for one in examine_machine(well, IntendedRun(is_host=True), only=["cannot-host"])] == [OK]


def test_every_check_has_a_case():
    assert {*CASES, "cannot-host", "antivirus-firewall"} == set(MACHINE_CHECKS)


def test_an_antivirus_program_is_named_where_others_must_get_in():
    guarded = of_windows(MIRRORED, guards=("Norton 360",))
    (finding,) = examine_machine(guarded, only=["antivirus-firewall"])
    assert finding.status == OK  # a machine that joins dials out
    assert "Norton 360" in finding.what
    (finding,) = examine_machine(guarded, IntendedRun(is_host=True), only=["antivirus-firewall"])
    assert finding.status == WARN
    assert "port 29500" in finding.fixes[0].note
    assert "Norton 360 may have a firewall of its own" in open_for(guarded, ["192.168.1.9"], 29500).note
    assert "firewall of its own" not in open_for(MIRRORED, ["192.168.1.9"], 29500).note


def test_a_forwarded_port_that_training_does_not_use_is_the_users_own():
    assert examine_machine(forwarding(WINDOWS_10, "172.29.99.7", 8080), only=["portproxy-stale"])[0].status == OK
    assert examine_machine(forwarding(MIRRORED, MIRRORED.addresses[0]), only=["portproxy-stale"])[0].status == WARN


def test_a_card_of_windows_without_a_driver_is_seen_inside_wsl():
    bare = replace(MIRRORED, gpus=(), pci_displays=("microsoft",))
    wsl = replace(bare.wsl, has_gpu_device=True, has_cuda_library=False)
    (finding,) = examine_machine(
        of_windows(replace(bare, wsl=wsl), displays=("intel", "nvidia")), only=["cuda-missing"]
    )
    assert finding.status == WARN
    assert "driver on Windows" in finding.fixes[0].note
    (finding,) = examine_machine(of_windows(replace(bare, wsl=wsl), displays=("intel",)), only=["cuda-missing"])
    assert finding.status == OK
    (finding,) = examine_machine(replace(bare, wsl=wsl, windows=None), only=["cuda-missing"])
    assert finding.status == "unknown"  # Windows was not asked
    with_driver = replace(bare, wsl=replace(wsl, has_cuda_library=True))
    (finding,) = examine_machine(of_windows(with_driver, displays=("nvidia",)), only=["cuda-missing"])
    assert "wsl --update" in finding.fixes[0].note


def test_windows_itself_is_not_asked_for_torch():
    bare = snapshot("windows_native")
    bare = replace(bare, software=replace(bare.software, torch=None, torchft=""))
    assert {one.id for one in troubles(examine_machine(bare))} == {"windows-native"}


def test_a_vpn_inside_wsl_is_dialled_by_the_others_behind_nat_too():
    tunnel = Interface(name="tailscale0", kind="tunnel", addresses=("100.64.0.7/32",))
    facts = replace(WINDOWS_10, interfaces=(*WINDOWS_10.interfaces, tunnel))
    (finding,) = examine_machine(facts, IntendedRun(is_host=True), only=["cannot-host"])
    assert finding.status == OK
    assert "potluck host --address 100.64.0.7" in finding.what


def test_wifi_and_a_slow_cable_of_windows_are_seen_inside_wsl():
    for adapters, check, words in (
        (("Wi-Fi", True, 433), "wifi", "Wi-Fi of Windows at 433 Mbit/s"),
        (("Ethernet", False, 100), "link-speed", "Ethernet of Windows on"),
    ):
        alias, is_wireless, speed = adapters
        adapter = replace(MIRRORED.windows.adapters[0], alias=alias, is_wireless=is_wireless, speed_mbit=speed)
        windows = replace(MIRRORED.windows, adapters=(adapter,))
        seen = replace(MIRRORED, windows=windows, interfaces=with_adapters(MIRRORED.interfaces, windows))
        (finding,) = examine_machine(seen, only=[check])
        assert finding.status == WARN
        assert words in finding.what


def test_whose_memory_of_a_card_is_taken_is_not_known_inside_wsl_and_a_desktop_is_let_alone():
    (finding,) = examine_machine(on_card(MIRRORED, used_bytes=5 * GIB, programs=()), only=["card-shared"])
    assert finding.status == "unknown"
    assert "5.0 GiB of 8.0 GiB are in use" in finding.what
    assert "Task Manager" in finding.fixes[0].note
    for idle in (on_card(MIRRORED, used_bytes=GIB), on_card(used_bytes=GIB, busy=0.1), on_card()):
        assert [one.status for one in examine_machine(idle, only=["card-shared"])] == [OK]
    busy = on_card(used_bytes=GIB, busy=0.6, programs=(CardProgram(pid=7, name="a game"),))
    (finding,) = examine_machine(busy, only=["card-shared"])
    assert (finding.status, finding.fixes[0].note) == (WARN, "close a game, or let it run elsewhere")
    assert "take 60 % of the time of the RTX 3070" in finding.what


def test_joining_tells_of_a_card_that_is_taken():
    [line] = quick_failures(CASES["card-shared"][0])
    assert line.endswith("blender (process 7, 2.0 GiB) (fix: potluck doctor --check card-shared)")
    assert quick_failures(CASES["card-shared"][3]) == []


@pytest.mark.parametrize("check_id", CASES)
def test_it_speaks_up_and_stays_silent(check_id):
    sick, status, words, well = CASES[check_id]
    (finding,) = examine_machine(sick, only=[check_id])
    assert (finding.id, finding.status, finding.machine) == (check_id, status, sick.machine)
    assert finding.fixes, "trouble without a fix"
    printed = [finding.what, *(text for fix in finding.fixes for text in (fix.note, *fix.commands, *fix.undo))]
    assert words in "\n".join(printed)
    (finding,) = examine_machine(well, only=[check_id])
    assert finding.status == OK, finding


# Every kind of machine, and all the trouble it is in.
KINDS = {
    "blackwell_with_old_build": {"arch-mismatch"},
    "broken_torch": {"torch-broken"},
    "desktop": set(),
    "docker_bridge": {"shm-small"},
    "gpu_desktop": set(),
    "gpu_with_cpu_build": {"cuda-missing"},
    "lab_machine_with_firewall": set(),
    "laptop_wifi_battery": {"wifi", "battery", "throttle"},
    "no_torch": {"torch-missing", "torchft-missing"},
    "pascal_with_new_build": {"arch-mismatch"},
    "slow_cable_full_disk": {"disk-full", "link-speed"},
    "vpn": {"vpn-route"},
    "windows_native": {"windows-native"},
    "wsl2_mirrored": set(),
    "wsl2_mirrored_wifi_first": {"wsl-wrong-adapter", "wsl-idle", "network-public-profile"},
    "wsl2_nat": set(),
    "wsl2_utf16_config": {"wslconfig-encoding"},
    "wsl2_windows10": set(),
}


@pytest.mark.parametrize("name", NAMES)
def test_each_kind_of_machine_has_its_troubles_and_no_others(name):
    assert {finding.id for finding in troubles(examine_machine(snapshot(name)))} == KINDS[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_survives_being_written_and_read(name):
    assert msgspec.json.decode(msgspec.json.encode(snapshot(name)), type=Facts) == snapshot(name)


def test_findings_come_worst_first():
    statuses = [finding.status for finding in examine_machine(snapshot("docker_bridge"))]
    assert statuses == sorted(statuses, key=[FAIL, WARN, "unknown", OK].index)


def test_commands_for_root_get_sudo_only_where_the_user_is_not_root():
    (finding,) = examine_machine(
        replace(LAB, shm=shm(MIB), system=replace(LAB.system, container=None)), only=["shm-small"]
    )
    assert finding.fixes[0].commands == ("mount -o remount,size=1G /dev/shm",)
    (finding,) = examine_machine(replace(DESKTOP, shm=shm(MIB)), only=["shm-small"])
    assert finding.fixes[0].commands == ("sudo mount -o remount,size=1G /dev/shm",)


def test_a_known_peer_is_written_into_the_hosts_file():
    plan = IntendedRun(peers=(Peer(name="ash", address="192.168.1.11"),))
    (finding,) = examine_machine(knowing(DESKTOP, ash=""), plan, only=["name-unresolvable"])
    assert finding.status == WARN  # Potluck uses addresses
    assert "192.168.1.11 ash" in finding.fixes[0].commands[0]


@pytest.mark.parametrize(
    ("capability", "architectures", "fits"),
    [
        ("8.6", ("sm_80",), True),  # code of an older card of the same generation
        ("8.0", ("sm_86",), False),
        ("12.0", ("sm_90",), False),
        ("12.0", ("compute_90",), True),  # PTX is compiled for newer cards
        ("6.1", ("sm_75", "compute_120"), False),
        ("9.0", ("sm_90a",), True),
    ],
)
def test_which_cards_a_build_has_code_for(capability, architectures, fits):
    torch = replace(GPU.software.torch, capabilities=(capability,), architectures=architectures)
    gpu = Gpu(name="a card", capability=capability)
    facts = replace(GPU, gpus=(gpu,), software=replace(GPU.software, torch=torch))
    (finding,) = examine_machine(facts, only=["arch-mismatch"])
    assert (finding.status == OK) == fits


def test_workers_of_one_machine_meet_on_it():
    """torchrun --standalone sets a loopback address for all of them."""
    alone = with_variables(DESKTOP, MASTER_ADDR="127.0.0.1", RANK="1", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    assert [finding.status for finding in examine_machine(alone, only=["nobody-hosts"])] == [OK]
    spread = with_variables(DESKTOP, MASTER_ADDR="127.0.0.1", RANK="1", WORLD_SIZE="2", LOCAL_WORLD_SIZE="1")
    assert [finding.status for finding in examine_machine(spread, only=["nobody-hosts"])] == [FAIL]
