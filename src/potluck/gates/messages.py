"""Messages between gates, their owners and workers: plain data, sent as JSON, checked when it arrives."""

from typing import Annotated, Literal

import msgspec

Kind = Literal["control", "bulk"]
Port = Annotated[int, msgspec.Meta(ge=1024, le=65535)]
KnownPorts = Annotated[dict[Port, Kind], msgspec.Meta(max_length=256)]
Way = Literal["here", "direct", "relayed", "down"]


class GateMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Base of messages; a tag in the JSON tells their types apart."""


# From the agent or the host of a machine to its gate, and back


class ClusterMachine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine of the cluster, as the host describes it."""

    machine: str
    number: int
    certificate: str
    addresses: tuple[str, ...]  # where its gate may be dialled, best first
    port: int


class HandedOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that the gate sends over plain HTTP to whoever knows its key, at the path /KEY/NAME."""

    key: str
    name: str
    file: str


class Settings(GateMessage, frozen=True, kw_only=True):
    """All settings of a gate; the gate cuts off machines and runs that are not in them any more."""

    machine: str
    host: str
    block: str
    members: tuple[ClusterMachine, ...]
    runs: dict[str, tuple[str, ...]] = {}  # the machines of each run
    service: str = ""  # the socket of the host's HTTP service; only a host has one
    handed_out: HandedOut | None = None  # the host's wheel; only a host has one


class LinkState(msgspec.Struct, frozen=True, kw_only=True):
    """How this machine reaches another one."""

    machine: str
    way: Way
    dialled: bool = False  # whether this machine dialled; else the other machine did
    address: str = ""  # of the other side of the connection
    round_trip_s: float | None = None
    trouble: str = ""  # why dialling failed


class Links(GateMessage, frozen=True, kw_only=True):
    """All links of a machine."""

    links: tuple[LinkState, ...]


# From a worker to its machine's gate, and back


class Expose(GateMessage, frozen=True, kw_only=True):
    """These ports of this machine's loopback address belong to a run, for as long as this conversation lasts."""

    run: str
    ports: KnownPorts
    waits: bool = True  # whether the answer comes only when the run's machines stand in for the ports


class Exposed(GateMessage, frozen=True, kw_only=True):
    """Answer to Expose: the run's machines in reach stand in for the ports, except for those that are taken there."""

    taken: dict[int, str] = {}  # port to the machine on which another program has it


class AskRates(GateMessage, frozen=True, kw_only=True):
    """Asks how fast this machine sends."""


class Rates(GateMessage, frozen=True, kw_only=True):
    """Answer to AskRates: bytes a second by loopback address, measured while there was something to send."""

    own: str
    sending_bytes_per_s: dict[str, float]


# Between gates: the first message of a connection


class Control(GateMessage, frozen=True, kw_only=True):
    """This connection is for letters."""

    place: str  # machines with the same place share a loopback interface


class Open(GateMessage, frozen=True, kw_only=True):
    """This connection is to be carried on to a port of a run, on the receiver or, where the host relays, on `to`."""

    run: str
    port: Port
    to: str = ""
    origin: str = ""  # the machine that dialled, set by the host where it relays


class Answer(GateMessage, frozen=True, kw_only=True):
    """This connection is the one that a DialMe asked for."""

    ticket: str


Header = Control | Open | Answer


# Between gates: letters


class Ports(GateMessage, frozen=True, kw_only=True):
    """The ports that the sender's workers have open, by run."""

    version: int
    runs: Annotated[dict[str, KnownPorts], msgspec.Meta(max_length=64)]
    asks: bool = False  # whether the receiver shall send its own ports


class Standing(GateMessage, frozen=True, kw_only=True):
    """Answer to Ports: the sender stands in for the ports that its workers may dial, except for those in `taken`."""

    version: int  # of the Ports
    runs: tuple[str, ...]  # of the Ports, those that the sender has a part in, as far as it knows
    taken: tuple[int, ...] = ()


class DialMe(GateMessage, frozen=True, kw_only=True):
    """The sender cannot dial the receiver: the receiver shall dial, and send an Answer with this ticket."""

    ticket: str
    kind: Kind


class CannotDial(GateMessage, frozen=True, kw_only=True):
    """Answer to DialMe: the sender cannot dial either."""

    ticket: str


class Undelivered(GateMessage, frozen=True, kw_only=True):
    """From the host: it cannot relay a letter to `machine`."""

    machine: str


class Ping(GateMessage, frozen=True, kw_only=True):
    """Asks for a Pong, to notice a dead link and to measure the round trip."""

    number: int


class Pong(GateMessage, frozen=True, kw_only=True):
    """Answer to the Ping with the same number."""

    number: int


Body = Ports | Standing | DialMe | CannotDial | Undelivered


class Letter(GateMessage, frozen=True, kw_only=True):
    """A control message from one gate to another, over the link between them or through the host."""

    sender: str
    to: str
    body: Body


Frame = Control | Letter | Ping | Pong
