"""What a machine can be asked when several are examined, and what it answers. Plain data: it travels as JSON."""

from typing import Protocol

import msgspec

from potluck.doctor.case import Absence, Link, Reduction
from potluck.machine.facts import Facts


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """A question or an answer."""


class Introduce(Message, frozen=True, kw_only=True):
    """Who are you?"""


class Introduction(Message, frozen=True, kw_only=True):
    """The machine's name, and the name that its kernel has."""

    machine: str
    hostname: str


class TakeFacts(Message, frozen=True, kw_only=True):
    """Take all facts, and look up these names."""

    names: tuple[str, ...] = ()
    with_torch: bool = True


class FactsTaken(Message, frozen=True, kw_only=True):
    """The facts."""

    facts: Facts


class OpenPort(Message, frozen=True, kw_only=True):
    """Listen on a port of an address, or on any if it is 0, for whoever knows the word."""

    address: str
    port: int
    word: str


class PortOpen(Message, frozen=True, kw_only=True):
    """Where the machine listens now, and a port that is free for a meeting. Port 0: it has another use for the port."""

    port: int
    free_port: int


class Dial(Message, frozen=True, kw_only=True):
    """Dial a machine that has opened a port, and measure the way to it."""

    source: str
    target: str
    address: str
    port: int
    word: str


class Dialled(Message, frozen=True, kw_only=True):
    """What came of it."""

    link: Link


class Reduce(Message, frozen=True, kw_only=True):
    """Take part in an all-reduce, in a process with torch."""

    machine: str
    meeting: str
    port: int
    rank: int
    num_machines: int
    address: str
    """Where this machine listens."""
    timeout_s: float = 8.0


class Reduced(Message, frozen=True, kw_only=True):
    """What came of it."""

    reduction: Reduction


class ClosePort(Message, frozen=True, kw_only=True):
    """Stop listening."""


class Done(Message, frozen=True, kw_only=True):
    """Nothing more to say."""


Ask = Introduce | TakeFacts | OpenPort | Dial | Reduce | ClosePort
Answer = Introduction | FactsTaken | PortOpen | Dialled | Reduced | Done


class StationLostError(Exception):
    """The machine does not answer, in one sentence, and what to do about it where that is known."""

    def __init__(self, why: str, *, fix: str = "") -> None:
        super().__init__(why)
        self.absence = Absence(why=why, fix=fix)


class Station(Protocol):
    """A machine that answers: this one, one at the other end of a connection, or one that has joined a host."""

    def ask(self, question: Ask) -> Answer:
        """The answer; StationLostError if there is none."""
        ...
