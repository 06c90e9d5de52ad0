"""A cluster as declared in its file: machines, links, disks and firewall rules."""

from dataclasses import dataclass
from typing import Literal

MAIN_NETWORK = "lan"
MAIN_INTERFACE = "eth0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An interface that leads through a switch to the other machines."""

    interface: str
    network: str
    rate_bits_per_s: int | None
    mtu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """The one link between the switches of two networks, as between two homes that share one range of addresses."""

    networks: tuple[str, str]
    rate_bits_per_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadEnd:
    """A bridge with an address and nothing attached, like docker0 on a machine without containers."""

    interface: str
    address: str  # with its prefix: 172.17.0.1/16


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A small file system of the machine's own over an existing directory."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FirewallRule:
    """One rule of a machine's firewall. Packets of established connections pass, unless the rule is abrupt."""

    action: Literal["drop", "reject", "accept"]
    direction: Literal["in", "out"] = "in"
    protocol: Literal["tcp", "udp", "icmp"] | None = None
    ports: str | None = None  # destination ports: "29500" or "1024-65535"
    peer: str | None = None  # a machine's name; None means all machines
    abrupt: bool = False  # breaks connections that are already established


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """One machine as declared: its size, its links, and the names that it resolves."""

    name: str
    cores: float
    hostname: str
    memory_bytes: int | None = None
    shm_bytes: int | None = None
    links: tuple[Link, ...] = ()
    dead_ends: tuple[DeadEnd, ...] = ()
    disks: tuple[Disk, ...] = ()
    resolves: tuple[str, ...] = ()  # machines whose names its hosts file holds
    own_name: Literal["loopback", "address", "missing"] = "loopback"
    firewall: tuple[FirewallRule, ...] = ()
    behind: str = ""  # its NAT gateway: a router of this name, or the machine whose bridge it is on


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Machines that switches connect."""

    name: str
    machines: tuple[MachineSpec, ...]
    uplinks: tuple[Uplink, ...] = ()

    @property
    def cores(self) -> float:
        return sum(machine.cores for machine in self.machines)

    @property
    def gateways(self) -> tuple[str, ...]:
        """Names of all NAT gateways: routers, and machines with other machines behind them."""
        return tuple(dict.fromkeys(machine.behind for machine in self.machines if machine.behind))

    def is_machine(self, name: str) -> bool:
        return any(machine.name == name for machine in self.machines)
