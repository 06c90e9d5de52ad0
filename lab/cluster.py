"""What a cluster of unequal machines is made of, as declared."""

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
class DeadEnd:
    """A bridge with an address and nobody on it: what docker0 looks like on a machine without containers."""

    interface: str
    address: str  # with its prefix: 172.17.0.1/16


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A small file system of the machine's own over an existing directory."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FirewallRule:
    """One rule of a machine's firewall. Replies to connections that are let in pass, unless the rule is abrupt."""

    action: Literal["drop", "reject", "accept"]
    direction: Literal["in", "out"] = "in"
    protocol: Literal["tcp", "udp", "icmp"] | None = None
    ports: str | None = None  # destination ports: "29500" or "1024-65535"
    peer: str | None = None  # a machine's name; none means everyone
    abrupt: bool = False  # breaks connections that are already established


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """One machine as declared: its size, its links, what it knows of the others."""

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
    behind: str = ""  # what translates its addresses: a router of this name, or a machine with it on its bridge


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Machines that share switches."""

    name: str
    machines: tuple[MachineSpec, ...]

    @property
    def cores(self) -> float:
        return sum(machine.cores for machine in self.machines)

    @property
    def gateways(self) -> tuple[str, ...]:
        """Everything that machines are behind."""
        return tuple(dict.fromkeys(machine.behind for machine in self.machines if machine.behind))

    def is_machine(self, name: str) -> bool:
        return any(machine.name == name for machine in self.machines)
