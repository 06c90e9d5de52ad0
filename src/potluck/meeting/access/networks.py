"""This machine's addresses that other machines can reach, best first."""

import ipaddress
from dataclasses import dataclass

from potluck.core.errors import MeetingError
from potluck.machine import interfaces as machine
from potluck.machine.adapters import with_adapters
from potluck.machine.facts import TUNNEL, WIRED, WIRELESS, Facts

_ORDER = (WIRED, WIRELESS, TUNNEL)
_EVERYWHERE = "0.0.0.0/0"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachableInterface:
    """One IPv4 address of a network interface, with its kind and routing."""

    name: str
    address: str
    network: str
    """The subnet of `address`: 192.168.1.0/24."""
    kind: str = WIRED
    has_default_route: bool = False

    @property
    def reason(self) -> str:
        return f"{self.name}, {self.kind}{', the default route' if self.has_default_route else ''}"


def is_usable(interface: ReachableInterface) -> bool:
    """Whether another machine could dial the address: it is not loopback, a container bridge or link-local."""
    return interface.kind in _ORDER and not ipaddress.ip_address(interface.address).is_link_local


def best_first(interfaces: list[ReachableInterface]) -> list[ReachableInterface]:
    """The usable interfaces: wired before wireless before tunnel; within a kind, the default route first."""
    usable = [interface for interface in interfaces if is_usable(interface)]
    return sorted(usable, key=lambda i: (_ORDER.index(i.kind), not i.has_default_route, i.name))


def read_interfaces(seen: Facts | None = None) -> list[ReachableInterface]:
    """All IPv4 addresses of this machine's interfaces that are up; `seen` has the Windows adapters behind WSL's."""
    windows = seen.windows if seen is not None and seen.wsl is not None else None
    default = {route.interface for route in machine.read_routes() if route.network == _EVERYWHERE}
    return [
        ReachableInterface(
            name=interface.title,
            address=address.partition("/")[0],
            network=str(ipaddress.ip_interface(address).network),
            kind=interface.kind,
            has_default_route=interface.name in default,
        )
        for interface in with_adapters(machine.read_interfaces(), windows)
        for address in interface.addresses
        if interface.is_up
    ]


def check_ipv4(text: str) -> str:
    """The typed text as an IPv4 address; raises MeetingError if it is none."""
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise MeetingError(f"{text!r} is no IPv4 address", fix="write it as 192.168.1.10") from None


def find_interface(address: str) -> ReachableInterface:
    """This machine's interface that has the address; raises MeetingError if there is none."""
    interfaces = read_interfaces()
    for interface in interfaces:
        if interface.address == address:
            return interface
    there = ", ".join(interface.address for interface in best_first(interfaces)) or "none that others can reach"
    raise MeetingError(f"no interface of this machine has the address {address}", fix=f"there is: {there}")
