"""The input of checks: one machine's facts and the planned run, or several machines and the links between them."""

import ipaddress
from collections.abc import Iterable

import msgspec

from potluck.machine.facts import LOOPBACK, WIRED, WIRELESS, Facts, Interface, System
from potluck.machine.interfaces import interface_towards

# Outcomes of dialling a machine. STALLED: connected, then no data moved. STRANGER: another program answers there.
OPEN, REFUSED, SILENT, UNREACHABLE, STALLED = "open", "refused", "silent", "unreachable", "stalled"
STRANGER = "stranger"
GIB = 2**30
# Where Docker, compose and Podman put containers unless they are told otherwise.
_BRIDGES = ("172.17.0.0/16", "172.18.0.0/15", "172.20.0.0/14", "10.88.0.0/16", "10.89.0.0/16")


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the structs that describe an examination."""


class Peer(Part, frozen=True, kw_only=True):
    """Another machine of the run."""

    name: str
    address: str


class IntendedRun(Part, frozen=True, kw_only=True):
    """The run that the user plans: its machines, its host and its sizes."""

    peers: tuple[Peer, ...] = ()
    host: str = ""  # the host's address, if it is known
    host_port: int = 0
    is_host: bool = False  # whether this machine is to be the host, which all others dial
    expected: tuple[str, ...] = ()  # names of the machines that should have joined
    checkpoint_bytes: int = GIB
    gradient_bytes: int = 0
    install: str = ""  # the command that installs the host's Potluck, if the host is known


class DialledLink(Part, frozen=True, kw_only=True):
    """What one machine measured when it dialled another."""

    source: str
    target: str
    outcome: str  # OPEN, REFUSED, ...
    way: str = ""  # between joined machines: how their gates reach each other
    round_trip_s: float | None = None
    bytes_per_s: float | None = None
    clock_offset_s: float | None = None  # the target's clock minus the source's
    loses_large_packets: bool = False

    @property
    def is_open(self) -> bool:
        return self.outcome in (OPEN, STALLED)


class Reduction(Part, frozen=True, kw_only=True):
    """One machine's result of the all-reduce over all machines."""

    machine: str
    error: str = ""
    names: tuple[str, ...] = ()
    is_sum_right: bool = False
    seconds: dict[int, float] = {}  # seconds of one all-reduce, by its size in bytes
    backend: str = "gloo"
    device: str = "cpu"
    variables: dict[str, str] = {}  # NCCL's variables in force, with nccl


class MissingAnswer(Part, frozen=True, kw_only=True):
    """Why a machine gave no answer, and the fix where one is known."""

    why: str
    fix: str = ""


class Examination(Part, frozen=True, kw_only=True):
    """The facts of several machines and all measurements between them."""

    machines: tuple[Facts, ...]
    addresses: dict[str, str] = {}  # the address at which each machine is dialled
    ports: dict[str, int] = {}  # the port of each machine's gate, or of potluck doctor --listen there
    translated: frozenset[str] = frozenset()  # machines behind NAT: others see them at another address than their own
    links: tuple[DialledLink, ...] = ()
    reductions: tuple[Reduction, ...] | None = None
    absent: dict[str, MissingAnswer] = {}  # machines that gave no answer
    plan: IntendedRun = IntendedRun()

    def facts(self, machine: str) -> Facts | None:
        """The facts of one machine; None if there are none."""
        return next((facts for facts in self.machines if facts.machine == machine), None)


def training_interface(facts: Facts, plan: IntendedRun) -> Interface | None:
    """The interface to the other machines: by the route to host, peer or MASTER_ADDR, else the default route's."""
    towards = [plan.host, *(peer.address for peer in plan.peers), _master_address(facts)]
    for address in towards:
        if address and address not in facts.addresses and is_ipv4(address):
            found = interface_towards(address, facts.interfaces, facts.routes)
            if found is not None and found.kind != LOOPBACK:
                return found
    default = next((route for route in facts.routes if route.network.endswith("/0")), None)
    if default is not None:
        return facts.interface(default.interface)
    usable = [one for one in facts.interfaces if one.is_up and one.addresses and one.kind in (WIRED, WIRELESS)]
    return usable[0] if usable else None


def is_ipv4(text: str) -> bool:
    """Whether the text is an IPv4 address, not a name or an IPv6 address."""
    try:
        return ipaddress.ip_address(text).version == 4
    except ValueError:
        return False


def is_on_bridge(system: System, addresses: Iterable[str]) -> bool:
    """Whether this is a container that has no address but those of a bridge, which other computers cannot dial."""
    others = [address for address in addresses if not is_within(address, "127.0.0.0/8")]
    return system.container is not None and bool(others) and all(is_within(a, *_BRIDGES) for a in others)


def is_within(address: str, *networks: str) -> bool:
    """Whether an address, with or without its prefix, is in one of these networks."""
    try:
        one = ipaddress.ip_address(address.partition("/")[0])
    except ValueError:
        return False
    return any(one in ipaddress.ip_network(network) for network in networks)


def _master_address(facts: Facts) -> str:
    """The IPv4 address that MASTER_ADDR resolves to on this machine, empty if none; unresolved, MASTER_ADDR itself."""
    master = facts.variables.get("MASTER_ADDR", "")
    known = facts.resolved(master)
    return next((a for a in known.addresses if is_ipv4(a)), "") if known else master
