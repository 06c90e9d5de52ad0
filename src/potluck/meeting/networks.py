"""This machine's addresses that others can reach, best first, each with the reason."""

import fcntl
import ipaddress
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from potluck.core.errors import MeetingError

_GET_ADDRESS = 0x8915  # SIOCGIFADDR
_GET_NETMASK = 0x891B  # SIOCGIFNETMASK
_VIRTUAL = ("docker", "br-", "veth", "virbr", "vmnet", "cni", "flannel", "lxc", "lxd", "podman", "kube")
_ROUTES = Path("/proc/net/route")
_INTERFACES = Path("/sys/class/net")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface with an IPv4 address, as far as it matters for being reached."""

    name: str
    address: str
    network: str
    """The addresses next to it: 192.168.1.0/24."""
    has_default_route: bool = False
    is_wireless: bool = False
    is_tunnel: bool = False

    @property
    def reason(self) -> str:
        kind = "tunnel" if self.is_tunnel else "wireless" if self.is_wireless else "wired"
        return f"{self.name}, {kind}{', the default route' if self.has_default_route else ''}"


def is_usable(interface: Interface) -> bool:
    """Whether another computer could dial it: not loopback, not a bridge for containers, not self-assigned."""
    address = ipaddress.ip_address(interface.address)
    return not (address.is_loopback or address.is_link_local or interface.name.startswith(_VIRTUAL))


def best_first(interfaces: list[Interface]) -> list[Interface]:
    """Those that others can reach: cable before wireless before tunnel, the default route before others."""
    usable = [interface for interface in interfaces if is_usable(interface)]
    return sorted(usable, key=lambda i: (i.is_tunnel, i.is_wireless, not i.has_default_route, i.name))


def read_interfaces() -> list[Interface]:
    """What there is on this machine, now."""
    routes = [line.split() for line in _ROUTES.read_text().splitlines()[1:]] if _ROUTES.is_file() else []
    default = {fields[0] for fields in routes if fields[1] == "00000000"}
    found = []
    for _, name in socket.if_nameindex():
        address, netmask = _ask(name, _GET_ADDRESS), _ask(name, _GET_NETMASK)
        if address is None or netmask is None:
            continue
        folder = _INTERFACES / name
        found.append(
            Interface(
                name=name,
                address=address,
                network=str(ipaddress.ip_interface(f"{address}/{netmask}").network),
                has_default_route=name in default,
                is_wireless=(folder / "wireless").exists() or (folder / "phy80211").exists(),
                is_tunnel=(folder / "tun_flags").exists() or name.startswith(("wg", "tailscale", "zt")),
            )
        )
    return found


def find_interface(address: str) -> Interface:
    """The interface that has this address."""
    interfaces = read_interfaces()
    for interface in interfaces:
        if interface.address == address:
            return interface
    there = ", ".join(interface.address for interface in best_first(interfaces)) or "none that others can reach"
    raise MeetingError(f"no interface of this machine has the address {address}", fix=f"there is: {there}")


def _ask(name: str, request: int) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), request, struct.pack("256s", name.encode()[:15]))
        except OSError:  # an interface without an IPv4 address
            return None
    return socket.inet_ntoa(answer[20:24])
