"""Messages between gates, their owners and workers: plain data, sent as JSON, checked when it arrives."""

from typing import Annotated, Literal

import msgspec

Kind = Literal["control", "bulk", "host"]
"""Of a port's traffic. `host`: control traffic of the host, which workers dial at the host's address."""
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


class Electorate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines that decide together who is the host: more than half of them, or half with `tie_breaker`."""

    voters: tuple[str, ...]
    tie_breaker: str = ""


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
    term: int = 0  # counts the cluster's hosts
    promised: int = 0  # the newest term for which this machine has promised its vote
    electorates: tuple[Electorate, ...] = ()  # the host needs all of them; none: it needs nobody


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


# From the agent or the host of a machine to its gate, over the socket for workers, and back


class AskTouch(GateMessage, frozen=True, kw_only=True):
    """Asks how long ago the host was heard, and, of the host's own gate, whether its lease is valid."""

    by_host: bool = False  # asked by the host's part of this machine, which is at work as long as it asks


class Touch(GateMessage, frozen=True, kw_only=True):
    """Answer to AskTouch."""

    host_heard_s: float  # since the last ping of the host of this term
    has_lease: bool  # whether enough machines have confirmed this host within the last moments
    newest_term: int  # the newest term that any gate has named
    confirmed_by: tuple[str, ...]  # the machines that have
    electorates: tuple[Electorate, ...] | None = None  # by which this gate judges that


class Promise(GateMessage, frozen=True, kw_only=True):
    """Asks the gate to promise this machine's vote: from then on it confirms no host of an earlier term."""

    term: int
    candidate: str
    is_released: bool = False  # the host itself has asked for this change
    is_trial: bool = False  # only asks whether the gate would: it promises nothing


class Promised(GateMessage, frozen=True, kw_only=True):
    """Answer to Promise; not granted if the host was heard a moment ago, or the term is not newer."""

    granted: bool
    term: int  # the newest term that this machine has promised


class Say(GateMessage, frozen=True, kw_only=True):
    """Send a note to the program that owns another machine's gate."""

    to: str
    text: Annotated[str, msgspec.Meta(max_length=4000)]


class Said(GateMessage, frozen=True, kw_only=True):
    """Answer to Say: whether a link was up to send the note over."""

    is_sent: bool


class AskNotes(GateMessage, frozen=True, kw_only=True):
    """Asks for notes after a number; the answer comes when there is one, or after a while."""

    after: int


class Notes(GateMessage, frozen=True, kw_only=True):
    """Answer to AskNotes: senders and texts, and the number of the last note."""

    notes: tuple[tuple[str, str], ...]
    last: int


class AskLinks(GateMessage, frozen=True, kw_only=True):
    """Asks for the state of all links, and the gate's port."""


class OwnLinks(GateMessage, frozen=True, kw_only=True):
    """Answer to AskLinks."""

    links: tuple[LinkState, ...]
    port: int


class Applied(GateMessage, frozen=True, kw_only=True):
    """Answer to Settings that came over the socket for workers."""


OwnersMessage = AskTouch | Promise | Say | AskNotes | AskLinks | Settings


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
    term: int = 0  # of the host that the sender follows, or is
    binds: bool = False  # whether the sender is the host, and the receiver shall confirm that


class Pong(GateMessage, frozen=True, kw_only=True):
    """Answer to the Ping with the same number."""

    number: int
    term: int = 0  # the newest for which the sender has promised its vote


class Note(GateMessage, frozen=True, kw_only=True):
    """A text from the program that owns the sender's gate, for the one that owns the receiver's."""

    text: Annotated[str, msgspec.Meta(max_length=4000)]


Body = Ports | Standing | DialMe | CannotDial | Undelivered | Note


class Letter(GateMessage, frozen=True, kw_only=True):
    """A control message from one gate to another, over the link between them or through the host."""

    sender: str
    to: str
    body: Body


Frame = Control | Letter | Ping | Pong
