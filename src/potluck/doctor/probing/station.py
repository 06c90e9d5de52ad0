"""This machine's answers when several machines are examined."""

import socket
from collections.abc import Callable, Mapping

import msgspec

from potluck.core.environment import read_environment
from potluck.doctor.examination import Reduction
from potluck.doctor.probing.asks import (
    Answer,
    Ask,
    ClosePort,
    Dial,
    Dialled,
    Done,
    FactsTaken,
    Introduce,
    Introduced,
    OpenPort,
    PortOpen,
    Reduce,
    Reduced,
    TakeFacts,
)
from potluck.doctor.probing.dialling import dial
from potluck.doctor.probing.ports import OpenedPort, free_port
from potluck.doctor.probing.reducing import TorchProcess
from potluck.machine.facts import Facts
from potluck.machine.snapshot import take_facts


class LocalStation:
    """Answers questions for this machine. The caller closes it, so that no port stays open.

    `opened` is a port that is open already. `expose` lets the machines that have joined dial a port; `variables` are
    the environment with which the process with torch can expose its ports, too.
    """

    def __init__(
        self,
        machine: str = "",
        *,
        opened: OpenedPort | None = None,
        expose: Callable[[int], None] = lambda _: None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._machine = machine or read_environment().machine
        self._lent = opened
        self._opened: OpenedPort | None = None
        self._expose = expose
        self._variables = variables
        self._torch: TorchProcess | None = None

    def ask(self, question: Ask) -> Answer:
        """Do what the question asks, and return the answer."""
        match question:
            case Introduce():
                return Introduced(machine=self._machine, hostname=socket.gethostname())
            case TakeFacts(names=names, with_torch=with_torch):
                facts = self._take_facts(names) if with_torch else take_facts(names_wanted=names, with_torch=False)
                return FactsTaken(facts=facts)
            case OpenPort(address=address, port=port, word=word):
                return PortOpen(port=self._open_port(address, port, word), free_port=free_port(address))
            case Dial():
                return Dialled(link=dial(question))
            case Reduce():
                return Reduced(reduction=self._reduce(question))
            case ClosePort():
                self._close_port()
        return Done()

    def close(self) -> None:
        """Stop listening, and end the process with torch."""
        self._close_port()
        if self._torch is not None:
            self._torch.close()
            self._torch = None

    def _take_facts(self, names: tuple[str, ...]) -> Facts:
        """All facts; the process that describes torch keeps running for the all-reduce."""
        self._torch = self._torch or TorchProcess(self._variables)
        facts = take_facts(names_wanted=names, with_torch=False)
        installed = facts.software.torch
        if installed is None:
            return facts
        software = msgspec.structs.replace(facts.software, torch=self._torch.describe(installed.version))
        return msgspec.structs.replace(facts, software=software)

    def _reduce(self, wanted: Reduce) -> Reduction:
        process, self._torch = self._torch or TorchProcess(self._variables), None
        try:
            return process.reduce(wanted)
        finally:
            process.close()

    def _open_port(self, address: str, port: int, word: str) -> int:
        self._close_port()
        if self._lent is not None:
            self._lent.word = word
            return self._lent.port
        try:
            self._opened = OpenedPort(address, port, word)
        except OSError:  # a gate or a host has the port
            return 0
        self._expose(self._opened.port)
        return self._opened.port

    def _close_port(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
