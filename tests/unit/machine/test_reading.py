"""What systems and tools print, and what it means."""

import base64

import pytest

from potluck.machine.adapters import address_outside, with_adapters
from potluck.machine.asking import NoAnswerError, ask, decode
from potluck.machine.facts import TUNNEL, WIRED, WIRELESS, Adapter, Interface, Route, Windows
from potluck.machine.firewall import blocks_input, filter_chains
from potluck.machine.interfaces import interface_towards, kind_of, read_routes
from potluck.machine.names import read_docker_names, resolve
from potluck.machine.windows import windows_from
from potluck.machine.wsl import bytes_of, is_wsl, read_wslconfig, version_of

SLEEP = ("Enabled", "Disabled", "Unsupported")
ROUTES = """Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
wlan0	00000000	0101A8C0	0003	0	0	600	00000000	0	0	0
eth0	00000000	0164A8C0	0003	0	0	100	00000000	0	0	0
eth0	0064A8C0	00000000	0001	0	0	100	00FFFFFF	0	0	0
wlan0	0001A8C0	00000000	0001	0	0	600	00FFFFFF	0	0	0
"""


def test_routes_are_read_most_exact_first_then_by_metric():
    routes = read_routes(ROUTES)
    assert [(route.network, route.interface) for route in routes] == [
        ("192.168.100.0/24", "eth0"),
        ("192.168.1.0/24", "wlan0"),
        ("0.0.0.0/0", "eth0"),
        ("0.0.0.0/0", "wlan0"),
    ]
    assert routes[2].gateway == "192.168.100.1"


def test_the_interface_towards_an_address_is_that_of_its_route():
    interfaces = (
        Interface(name="lo", kind="loopback", addresses=("127.0.0.1/8",)),
        Interface(name="eth0", addresses=("192.168.100.2/24",)),
        Interface(name="wlan0", kind="wireless", addresses=("192.168.1.5/24",)),
    )
    routes = read_routes(ROUTES)

    def towards(address):
        return interface_towards(address, interfaces, routes).name

    assert towards("192.168.1.77") == "wlan0"
    assert towards("8.8.8.8") == "eth0"
    assert towards("192.168.100.2") == "lo"  # this machine itself
    assert interface_towards("8.8.8.8", interfaces, (Route(network="10.0.0.0/8", interface="eth0"),)) is None


def test_kinds_of_interfaces_by_the_kernel_and_by_name(tmp_path):
    (tmp_path / "wlx001122" / "phy80211").mkdir(parents=True)
    (tmp_path / "home" / "bridge").mkdir(parents=True)
    kinds = {name: kind_of(name, tmp_path) for name in ("lo", "eth0", "wlx001122", "home", "docker0", "veth12", "wg0")}
    assert kinds == {
        "lo": "loopback",
        "eth0": "wired",
        "wlx001122": "wireless",
        "home": "bridge",
        "docker0": "bridge",
        "veth12": "virtual",
        "wg0": "tunnel",
    }


def test_only_chains_that_can_refuse_may_block():
    def chain(name, **more):
        return {"chain": {"family": "inet", "table": "filter", "name": name, **more}}

    def rule(chain_name, *expressions):
        return {"rule": {"family": "inet", "table": "filter", "chain": chain_name, "expr": list(expressions)}}

    ruleset = {
        "nftables": [
            {"metainfo": {}},
            chain("input", type="filter", hook="input", policy="accept"),
            chain("output", type="filter", hook="output", policy="accept"),
            rule("input", {"match": {}}, {"drop": None}),
            rule("output", {"accept": None}),
        ]
    }
    assert {one.name: one.may_block for one in filter_chains(ruleset)} == {"input": True, "output": False}
    ruleset["nftables"][3] = rule("services", {"reject": {}})  # jumped to from either
    assert all(one.may_block for one in filter_chains(ruleset))
    assert filter_chains({}) == ()


def test_iptables_rules_that_refuse():
    assert blocks_input("-P INPUT DROP\n")
    assert blocks_input("-P INPUT ACCEPT\n-A INPUT -p tcp -j REJECT\n")
    assert not blocks_input("-P INPUT ACCEPT\n-A INPUT -i lo -j ACCEPT\n")


def test_wslconfig_in_every_encoding():
    text = "[wsl2]\nnetworkingMode=Mirrored\n[general]\ninstanceIdleTimeout=-1\n"
    assert read_wslconfig(text.encode()) == ("mirrored", -1, "ascii")
    assert read_wslconfig(text.encode("utf-8-sig")) == ("mirrored", -1, "utf-8-bom")
    assert read_wslconfig(text.encode("utf-16")) == ("mirrored", -1, "utf-16")
    assert read_wslconfig(None) == (None, None, None)
    assert read_wslconfig(b"networkingMode=mirrored") == (None, None, "damaged")


def test_adapters_of_windows_as_powershell_tells_them():
    adapter = {
        "alias": "Wi-Fi",
        "is_up": True,
        "bits": 866700000,
        "media": 9,
        "metric": 35,
        "profile": "Public",
        "addresses": ["192.168.1.5"],
    }
    for adapters in (adapter, [adapter]):  # PowerShell makes no list of one
        windows = windows_from({"build": 22631, "adapters": adapters})
        assert windows.build == 22631
        assert (windows.adapters[0].speed_mbit, windows.adapters[0].is_wireless) == (866, True)
    assert windows_from({"build": 19045, "adapters": None}).adapters == ()
    assert [windows_from({"adapters": {**adapter, "sleep": word}}).adapters[0].may_sleep for word in SLEEP] == [
        True,
        False,
        None,
    ]


def test_graphics_cards_guards_and_forwarded_ports_of_windows():
    windows = windows_from(
        {
            "displays": ["PCI\\VEN_10DE&DEV_2504&SUBSYS_881D1043&REV_A1\\4&1", "PCI\\VEN_8086&DEV_9A49", "ROOT\\BASIC"],
            "guards": [
                {"name": "Norton 360", "state": 0x51000},
                {"name": "Norton 360", "state": 0x41000},
                {"name": "Avira Security", "state": 0x40000},
                {"name": "Windows Defender", "state": 0x61100},
                {"name": "Microsoft Defender Antivirus", "state": 0x61100},
            ],
            "forwarded": "0.0.0.0/29500 172.29.21.83/29500",
        }
    )
    assert windows.displays == ("nvidia", "intel")
    assert windows.guards == ("Norton 360",)  # Avira is off, Microsoft's own count as the Windows firewall
    (port,) = windows.forwarded_ports
    assert (port.listen_address, port.listen_port, port.connect_address) == ("0.0.0.0", 29500, "172.29.21.83")
    assert windows_from({"displays": None, "guards": None, "forwarded": [None, "?"]}) == windows_from({})
    assert bytes_of(base64.b64encode(b"\xff\xfe").decode()) == b"\xff\xfe"


def test_kernels_of_wsl():
    assert is_wsl("5.15.167.4-microsoft-standard-WSL2")
    assert not is_wsl("6.8.0-45-generic")
    assert is_wsl("4.4.0-19041-Microsoft")


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ("4.4.0-19041-Microsoft", 1),
        ("4.19.128-microsoft-standard", 2),
        ("5.15.167.4-microsoft-standard-WSL2", 2),
        ("6.6.36.3-Microsoft-Standard-WSL2+", 2),
    ],
)
def test_the_version_of_wsl_by_its_kernel(release, version):
    assert version_of(release) == version


def test_interfaces_of_wsl_are_as_fast_as_the_adapters_of_windows():
    cable = Adapter(alias="Ethernet", speed_mbit=100, metric=25, addresses=("192.168.100.1",))
    radio = Adapter(alias="WLAN", is_wireless=True, speed_mbit=433, metric=40, addresses=("192.168.1.21",))
    switch = Adapter(alias="vEthernet (WSL)", metric=5, addresses=("172.29.16.1",))
    windows = Windows(adapters=(switch, cable, radio))

    def told(address, kind=WIRED):
        (one,) = with_adapters([Interface(name="eth0", kind=kind, speed_mbit=10000, addresses=(address,))], windows)
        return one.kind, one.speed_mbit, one.title

    assert told("192.168.1.21/24") == (WIRELESS, 433, "WLAN of Windows")  # mirrored
    assert told("192.168.100.1/24") == (WIRED, 100, "Ethernet of Windows")
    assert told("172.29.21.83/20") == (WIRED, 100, "Ethernet of Windows")  # behind NAT: what Windows prefers
    assert told("100.64.0.7/32", TUNNEL) == (TUNNEL, 10000, "eth0")
    assert address_outside("172.29.21.83", windows) == "192.168.100.1"
    assert address_outside("192.168.1.21", windows) == "192.168.1.21"
    assert address_outside("10.0.0.7", None) == "10.0.0.7"
    outside = (Interface(name="eth0", speed_mbit=1000),)
    assert with_adapters(outside, None) == outside


def test_names_that_docker_desktop_wrote():
    hosts = "127.0.0.1 localhost\n192.168.1.7 host.docker.internal gateway.docker.internal # Docker Desktop\n"
    assert [(one.name, one.addresses) for one in read_docker_names(hosts)] == [
        ("host.docker.internal", ("192.168.1.7",)),
        ("gateway.docker.internal", ("192.168.1.7",)),
    ]


def test_a_name_that_nobody_knows_has_an_error_and_no_address():
    known, unknown = resolve(["localhost", "nobody.invalid"])
    assert known.addresses
    assert unknown.error
    assert not unknown.addresses


def test_programs_that_do_not_answer_are_told_in_a_sentence():
    for command, timeout_s, words in (
        (["no-such-program"], 10, "not installed"),
        (["sleep", "9"], 0.1, "no answer"),
        (["false"], 10, "status 1"),
    ):
        with pytest.raises(NoAnswerError, match=words):
            ask(command, timeout_s=timeout_s)
    assert decode("Größe".encode("utf-16-le")) == "Größe"
