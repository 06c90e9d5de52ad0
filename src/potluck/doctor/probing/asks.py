"""What a machine can be asked when several are examined, and what it answers. Plain data: it travels as JSON."""

from typing import Protocol

import msgspec

from potluck.doctor.examination import DialledLink, MissingAnswer, Reduction
from potluck.machine.facts import Facts


class ProbeMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """A question or an answer."""


class Introduce(ProbeMessage, frozen=True, kw_only=True):
    """Who are you?"""


class Introduced(ProbeMessage, frozen=True, kw_only=True):
    """The machine's name, and the name that its kernel has."""

    machine: str
    hostname: str


class TakeFacts(ProbeMessage, frozen=True, kw_only=True):
    """Take all facts, and look up these names."""

    names: tuple[str, ...] = ()
    with_torch: bool = True


class FactsTaken(ProbeMessage, frozen=True, kw_only=True):
    """The facts."""

    facts: Facts


class OpenPort(ProbeMessage, frozen=True, kw_only=True):
    """Listen on a port of an address, or on any if it is 0, for whoever knows the word."""

    address: str
    port: int
    word: str


class PortOpen(ProbeMessage, frozen=True, kw_only=True):
    """Where the machine listens now, and a port that is free for a meeting. Port 0: it has another use for the port."""

    port: int
    free_port: int


class Dial(ProbeMessage, frozen=True, kw_only=True):
    """Dial a machine that has opened a port, and measure the way to it."""

    source: str
    target: str
    address: str
    port: int
    word: str


class Dialled(ProbeMessage, frozen=True, kw_only=True):
    """What came of it."""

    link: DialledLink


class Reduce(ProbeMessage, frozen=True, kw_only=True):
    """Take part in an all-reduce, in a process with torch."""

    machine: str
    meeting: str
    port: int
    rank: int
    num_machines: int
    address: str
    """Where this machine listens."""
    timeout_s: float = 8.0


class Reduced(ProbeMessage, frozen=True, kw_only=True):
    """What came of it."""

    reduction: Reduction


class ClosePort(ProbeMessage, frozen=True, kw_only=True):
    """Stop listening."""


class Done(ProbeMessage, frozen=True, kw_only=True):
    """Nothing more to say."""


Ask = Introduce | TakeFacts | OpenPort | Dial | Reduce | ClosePort
Answer = Introduced | FactsTaken | PortOpen | Dialled | Reduced | Done


class StationLostError(Exception):
    """The machine does not answer, in one sentence, and what to do about it where that is known."""

    def __init__(self, why: str, *, fix: str = "") -> None:
        super().__init__(why)
        self.absence = MissingAnswer(why=why, fix=fix)


class Station(Protocol):
    """A machine that answers: this one, one at the other end of a connection, or one that has joined a host."""

    def ask(self, question: Ask) -> Answer:
        """The answer; StationLostError if there is none."""
        ...
