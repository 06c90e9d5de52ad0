"""What gates, their owners and workers tell each other: plain data, as JSON, checked when it arrives."""

from typing import Annotated, Literal

import msgspec

Kind = Literal["control", "bulk"]
Port = Annotated[int, msgspec.Meta(ge=1024, le=65535)]
KnownPorts = Annotated[dict[Port, Kind], msgspec.Meta(max_length=256)]
Way = Literal["here", "direct", "relayed", "down"]


class GateMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """A message that can be told from others."""


# From the agent or the host of a machine to its gate, and back


class ClusterMachine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine of the cluster, as the host tells of it."""

    machine: str
    number: int
    certificate: str
    addresses: tuple[str, ...]  # where its gate may be dialled, best first
    port: int


class Settings(GateMessage, frozen=True, kw_only=True):
    """All that a gate has to know; whatever is not in it any more is cut off."""

    machine: str
    host: str
    block: str
    members: tuple[ClusterMachine, ...]
    runs: dict[str, tuple[str, ...]] = {}  # which machines are in each
    service: str = ""  # the socket of the host's HTTP service; only a host has one


class LinkState(msgspec.Struct, frozen=True, kw_only=True):
    """How one machine reaches another."""

    machine: str
    way: Way
    dialled: bool = False  # by this machine; else the other one dialled
    address: str = ""  # of the other side of the connection
    round_trip_s: float | None = None
    trouble: str = ""  # what dialling met


class Links(GateMessage, frozen=True, kw_only=True):
    """All links of a machine."""

    links: tuple[LinkState, ...]


# From a worker to its machine's gate, and back


class Expose(GateMessage, frozen=True, kw_only=True):
    """These ports of this machine's loopback address belong to a run, for as long as this conversation lasts."""

    run: str
    ports: KnownPorts
    waits: bool = True  # for the answer, until the run's machines stand in for the ports


class Exposed(GateMessage, frozen=True, kw_only=True):
    """The run's machines stand in for the ports, as far as they are in reach, but for ports that are taken there."""

    taken: dict[int, str] = {}


class AskRates(GateMessage, frozen=True, kw_only=True):
    """How fast does this machine send?"""


class Rates(GateMessage, frozen=True, kw_only=True):
    """Bytes a second to other machines' loopback addresses, while there was something to send."""

    own: str
    sending_bytes_per_s: dict[str, float]


# Between gates: the first message of a connection


class Control(GateMessage, frozen=True, kw_only=True):
    """This connection is for letters."""

    place: str  # machines with the same one share a loopback interface


class Open(GateMessage, frozen=True, kw_only=True):
    """This connection goes on to a port of a run on the machine that is asked, or on another one through the host."""

    run: str
    port: Port
    to: str = ""
    origin: str = ""  # told by the host, where it relays


class Answer(GateMessage, frozen=True, kw_only=True):
    """This connection was asked for by a letter."""

    ticket: str


Header = Control | Open | Answer


# Between gates: letters


class Ports(GateMessage, frozen=True, kw_only=True):
    """What the sender's workers have open, run by run."""

    version: int
    runs: Annotated[dict[str, KnownPorts], msgspec.Meta(max_length=64)]
    asks: bool = False  # for the receiver's own


class Standing(GateMessage, frozen=True, kw_only=True):
    """The sender stands in for these ports."""

    version: int
    runs: tuple[str, ...]  # those that the sender takes part in, as far as it knows
    taken: tuple[int, ...] = ()


class DialMe(GateMessage, frozen=True, kw_only=True):
    """The sender cannot dial the other: please dial, and answer this ticket."""

    ticket: str
    kind: Kind


class CannotDial(GateMessage, frozen=True, kw_only=True):
    """The sender was asked to dial, and cannot either."""

    ticket: str


class Undelivered(GateMessage, frozen=True, kw_only=True):
    """The host cannot pass a letter on."""

    machine: str


class Ping(GateMessage, frozen=True, kw_only=True):
    """Is anybody there?"""

    number: int


class Pong(GateMessage, frozen=True, kw_only=True):
    """Yes."""

    number: int


Body = Ports | Standing | DialMe | CannotDial | Undelivered


class Letter(GateMessage, frozen=True, kw_only=True):
    """From one gate to another, over the connection between them or through the host."""

    sender: str
    to: str
    body: Body


Frame = Control | Letter | Ping | Pong
