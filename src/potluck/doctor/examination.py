"""What a check may look at: one machine with what is planned for it, or several machines and what is between them."""

import ipaddress

import msgspec

from potluck.machine.facts import LOOPBACK, WIRED, WIRELESS, Facts, Interface
from potluck.machine.interfaces import interface_towards

# What comes of a connection; a stranger is some other program that answers in the place of the machine.
OPEN, REFUSED, SILENT, UNREACHABLE, STALLED = "open", "refused", "silent", "unreachable", "stalled"
STRANGER = "stranger"
GIB = 2**30


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a case."""


class Peer(Part, frozen=True, kw_only=True):
    """Another machine of the run."""

    name: str
    address: str


class IntendedRun(Part, frozen=True, kw_only=True):
    """What a user is about to do with the machines."""

    peers: tuple[Peer, ...] = ()
    host: str = ""  # the address of the meeting point, if it is known
    host_port: int = 0
    is_host: bool = False  # whether this machine is to be the host, which all others dial
    expected: tuple[str, ...] = ()  # names of the machines that should be there
    checkpoint_bytes: int = GIB
    gradient_bytes: int = 0


class DialledLink(Part, frozen=True, kw_only=True):
    """What one machine saw when it dialled another."""

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
    """What one machine saw of the all-reduce over all of them."""

    machine: str
    error: str = ""
    names: tuple[str, ...] = ()
    is_sum_right: bool = False
    seconds: dict[int, float] = {}  # bytes to seconds


class MissingAnswer(Part, frozen=True, kw_only=True):
    """Why a machine gave no answer, and what to do about it where that is known."""

    why: str
    fix: str = ""


class Examination(Part, frozen=True, kw_only=True):
    """Several machines and everything that was seen between them."""

    machines: tuple[Facts, ...]
    addresses: dict[str, str] = {}  # the one that each machine is dialled at
    ports: dict[str, int] = {}  # each machine's one port
    translated: frozenset[str] = frozenset()  # machines that others see at another address than their own
    links: tuple[DialledLink, ...] = ()
    reductions: tuple[Reduction, ...] | None = None
    absent: dict[str, MissingAnswer] = {}  # machines that gave no answer
    plan: IntendedRun = IntendedRun()

    def facts(self, machine: str) -> Facts | None:
        """One machine's."""
        return next((facts for facts in self.machines if facts.machine == machine), None)


def training_interface(facts: Facts, plan: IntendedRun) -> Interface | None:
    """The interface that leads to the others: by the route to the host or a peer, else the default route's."""
    towards = [plan.host, *(peer.address for peer in plan.peers), _address_or_nothing(facts)]
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
    """Whether it is an IPv4 address and not a name."""
    try:
        return ipaddress.ip_address(text).version == 4
    except ValueError:
        return False


def is_within(address: str, *networks: str) -> bool:
    """Whether an address, with or without its prefix, is in one of these networks."""
    try:
        one = ipaddress.ip_address(address.partition("/")[0])
    except ValueError:
        return False
    return any(one in ipaddress.ip_network(network) for network in networks)


def _address_or_nothing(facts: Facts) -> str:
    """The address that MASTER_ADDR means here."""
    master = facts.variables.get("MASTER_ADDR", "")
    known = facts.resolved(master)
    return next((a for a in known.addresses if is_ipv4(a)), "") if known else master
