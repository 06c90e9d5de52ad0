"""Network interfaces, their kinds, and the IPv4 routes through them."""

import ipaddress
import socket
from collections.abc import Iterable
from pathlib import Path

from potluck.machine.facts import BRIDGE, LOOPBACK, TUNNEL, VIRTUAL, WIRED, WIRELESS, Interface, Route

_SYS = Path("/sys/class/net")
_PROC_ROUTE = Path("/proc/net/route")
_TUNNELS = ("tun", "tap", "wg", "ppp", "tailscale", "zt", "utun", "nordlynx")
_BRIDGES = ("docker", "br-", "virbr", "lxcbr", "lxdbr", "cni", "podman", "vEthernet")
_VIRTUAL = ("veth", "ifb", "dummy", "sit", "ip6tnl", "gre", "vnet", "vmnet", "bonding_masters", "loopback0")
_WIRELESS = ("wl", "wifi", "ath", "ra")
_ROUTE_UP = 1


def read_interfaces() -> tuple[Interface, ...]:
    """All network interfaces; speed and carrier are None where the kernel does not report them."""
    import psutil  # noqa: PLC0415  only the commands that need facts pay for the import

    addresses = psutil.net_if_addrs()
    found = []
    for name, stats in sorted(psutil.net_if_stats().items()):
        mine = addresses.get(name, [])
        found.append(
            Interface(
                name=name,
                kind=kind_of(name),
                is_up=stats.isup,
                has_carrier=_carrier(name, is_up=stats.isup),
                speed_mbit=stats.speed if 0 < stats.speed < 65535 else None,
                is_half_duplex=stats.duplex == psutil.NIC_DUPLEX_HALF,
                mtu=stats.mtu,
                addresses=tuple(
                    f"{a.address}/{_prefix(a.netmask)}" for a in mine if a.family == socket.AF_INET and a.address
                ),
            )
        )
    return tuple(found)


def kind_of(name: str, sys_net: Path = _SYS) -> str:
    """The kind of an interface: from /sys where the kernel states it, else by the names that drivers and tools give."""
    folder = sys_net / name
    if name == "lo" or name.lower().startswith("loopback pseudo"):
        return LOOPBACK
    if (folder / "wireless").exists() or (folder / "phy80211").exists() or name.lower().startswith("wi-fi"):
        return WIRELESS
    if (folder / "bridge").exists() or name.startswith(_BRIDGES):
        return BRIDGE
    if (folder / "tun_flags").exists() or name.startswith(_TUNNELS):
        return TUNNEL
    if name.startswith(_VIRTUAL):
        return VIRTUAL
    return WIRELESS if name.startswith(_WIRELESS) else WIRED


def read_routes(text: str | None = None) -> tuple[Route, ...]:
    """The IPv4 routes, longest prefix first. Read from /proc: no program needs to be installed."""
    lines = (text if text is not None else _PROC_ROUTE.read_text()).splitlines()[1:]
    routes = []
    for line in lines:
        interface, network, gateway, flags, _, _, metric, mask, *_ = line.split()
        if not int(flags, 16) & _ROUTE_UP:
            continue
        prefix = int(mask, 16).bit_count()
        routes.append(
            Route(
                network=f"{_dotted(network)}/{prefix}",
                interface=interface,
                gateway="" if gateway == "00000000" else _dotted(gateway),
                metric=int(metric),
            )
        )
    return tuple(sorted(routes, key=lambda route: (-int(route.network.partition("/")[2]), route.metric)))


def interface_towards(address: str, interfaces: tuple[Interface, ...], routes: tuple[Route, ...]) -> Interface | None:
    """The interface on the route to an address: longest prefix, then lowest metric; loopback for own addresses."""
    target = ipaddress.ip_address(address)
    if target.version != 4:
        return None
    by_name = {one.name: one for one in interfaces}
    if any(address == mine.partition("/")[0] for one in interfaces for mine in one.addresses) or target.is_loopback:
        return next((one for one in interfaces if one.kind == LOOPBACK), None)
    for route in routes:
        if target in ipaddress.ip_network(route.network) and route.interface in by_name:
            return by_name[route.interface]
    return None


def interface_with(address: str) -> str:
    """The interface that has this address; empty if there is none, or only the loopback interface."""
    owners = (one for one in read_interfaces() if one.kind != LOOPBACK)
    return next((one.name for one in owners if address in [own.partition("/")[0] for own in one.addresses]), "")


def interface_to_all(addresses: Iterable[str]) -> str:
    """The interface on the routes to all these addresses; empty if there are several, or an address is not known."""
    interfaces, routes = read_interfaces(), read_routes()
    names = set()
    for address in addresses:
        found = interface_towards(address, interfaces, routes) if address else None
        if found is None or found.kind == LOOPBACK:
            return ""
        names.add(found.name)
    return names.pop() if len(names) == 1 else ""


def _dotted(little_endian_hex: str) -> str:
    return socket.inet_ntoa(bytes.fromhex(little_endian_hex)[::-1])


def _prefix(netmask: str | None) -> int:
    return ipaddress.ip_network(f"0.0.0.0/{netmask}").prefixlen if netmask else 32


def _carrier(name: str, *, is_up: bool) -> bool | None:
    try:
        return (_SYS / name / "carrier").read_text().strip() == "1"
    except OSError:  # the kernel refuses to read it while the interface is down
        return None if is_up else False
