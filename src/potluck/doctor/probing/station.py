"""This machine's answers when several are examined."""

import socket

import msgspec

from potluck.core.environment import read_environment
from potluck.doctor.case import Reduction
from potluck.doctor.probing.asks import (
    Answer,
    Ask,
    ClosePorts,
    Dial,
    Dialled,
    Done,
    FactsTaken,
    Introduce,
    Introduction,
    OpenPorts,
    PortsOpen,
    Reduce,
    Reduced,
    TakeFacts,
)
from potluck.doctor.probing.dialling import dial
from potluck.doctor.probing.ports import OpenedPorts, free_port
from potluck.doctor.probing.reducing import TorchProcess
from potluck.machine.facts import Facts
from potluck.machine.snapshot import take_facts

_MOST_PORTS = 16


class LocalStation:
    """Answers for this machine. Close it, so that no port stays open."""

    def __init__(self, machine: str = "") -> None:
        self._machine = machine or read_environment().machine
        self._opened: OpenedPorts | None = None
        self._torch: TorchProcess | None = None

    def ask(self, question: Ask) -> Answer:
        """Do what is asked, now."""
        match question:
            case Introduce():
                return Introduction(machine=self._machine, hostname=socket.gethostname())
            case TakeFacts(names=names, with_torch=with_torch):
                facts = self._take_facts(names) if with_torch else take_facts(names_wanted=names, with_torch=False)
                return FactsTaken(facts=facts)
            case OpenPorts(address=address, num_ports=num_ports, word=word):
                self._close_ports()
                self._opened = OpenedPorts(address, min(num_ports, _MOST_PORTS), word)
                return PortsOpen(
                    ports=self._opened.ports, datagram_port=self._opened.datagram_port, free_port=free_port(address)
                )
            case Dial():
                return Dialled(link=dial(question))
            case Reduce():
                return Reduced(reduction=self._reduce(question))
            case ClosePorts():
                self._close_ports()
        return Done()

    def close(self) -> None:
        """Stop listening, and end the process with torch."""
        self._close_ports()
        if self._torch is not None:
            self._torch.close()
            self._torch = None

    def _take_facts(self, names: tuple[str, ...]) -> Facts:
        """All facts; the process that tells torch's stays for the all-reduce."""
        self._torch = self._torch or TorchProcess()
        facts = take_facts(names_wanted=names, with_torch=False)
        installed = facts.software.torch
        if installed is None:
            return facts
        software = msgspec.structs.replace(facts.software, torch=self._torch.describe(installed.version))
        return msgspec.structs.replace(facts, software=software)

    def _reduce(self, wanted: Reduce) -> Reduction:
        process, self._torch = self._torch or TorchProcess(), None
        try:
            return process.reduce(wanted)
        finally:
            process.close()

    def _close_ports(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
