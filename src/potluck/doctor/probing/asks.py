"""Questions to a machine when several are examined, and its answers: plain data, sent as JSON."""

from typing import Protocol

import msgspec

from potluck.doctor.examination import DialledLink, MissingAnswer, Reduction
from potluck.machine.facts import Facts


class ProbeMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Base of questions and answers."""


class Introduce(ProbeMessage, frozen=True, kw_only=True):
    """Asks for the machine's name."""


class Introduced(ProbeMessage, frozen=True, kw_only=True):
    """The machine's name and its hostname."""

    machine: str
    hostname: str


class TakeFacts(ProbeMessage, frozen=True, kw_only=True):
    """Asks for all facts of the machine, and to resolve these names."""

    names: tuple[str, ...] = ()
    with_torch: bool = True


class FactsTaken(ProbeMessage, frozen=True, kw_only=True):
    """The machine's facts."""

    facts: Facts


class OpenPort(ProbeMessage, frozen=True, kw_only=True):
    """Asks the machine to listen on a port, any if 0, for diallers that prove that they know the word."""

    address: str
    port: int
    word: str


class PortOpen(ProbeMessage, frozen=True, kw_only=True):
    """The port that the machine listens on, 0 if it cannot open one, and a free port for the rendezvous."""

    port: int
    free_port: int


class Dial(ProbeMessage, frozen=True, kw_only=True):
    """Asks the machine to dial another one that has opened a port, and to measure the link to it."""

    source: str
    target: str
    address: str
    port: int
    word: str


class Dialled(ProbeMessage, frozen=True, kw_only=True):
    """Answer to Dial: the measured link."""

    link: DialledLink


class Reduce(ProbeMessage, frozen=True, kw_only=True):
    """Asks the machine to take part in an all-reduce, in a process with torch."""

    machine: str
    meeting: str
    port: int
    rank: int
    num_machines: int
    address: str
    """Where this machine listens."""
    timeout_s: float = 8.0
    backend: str = "gloo"
    device: str = "cpu"
    """Where the numbers are: Gloo takes those of an accelerator through host memory."""
    lan_peers: tuple[str, ...] = ()
    """Addresses of the other machines past their gates, by which NCCL's interface is chosen."""


class Reduced(ProbeMessage, frozen=True, kw_only=True):
    """Answer to Reduce: the machine's result of the all-reduce."""

    reduction: Reduction


class ClosePort(ProbeMessage, frozen=True, kw_only=True):
    """Asks the machine to close the port that it opened for OpenPort."""


class Done(ProbeMessage, frozen=True, kw_only=True):
    """The machine has done what was asked, and has nothing to return."""


Ask = Introduce | TakeFacts | OpenPort | Dial | Reduce | ClosePort
Answer = Introduced | FactsTaken | PortOpen | Dialled | Reduced | Done


class StationLostError(Exception):
    """A machine does not answer: `why` in one sentence, and the fix where one is known."""

    def __init__(self, why: str, *, fix: str = "") -> None:
        super().__init__(why)
        self.absence = MissingAnswer(why=why, fix=fix)


class Station(Protocol):
    """A machine to ask: this one, one at the other end of a connection, or one that has joined a host."""

    def ask(self, question: Ask) -> Answer:
        """The machine's answer; StationLostError if there is none."""
        ...
