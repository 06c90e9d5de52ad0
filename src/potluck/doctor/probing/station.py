"""This machine's answers when several are examined."""

import socket

from potluck.core.environment import read_environment
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
from potluck.doctor.probing.reducing import reduce_in_subprocess
from potluck.machine.snapshot import take_facts

_MOST_PORTS = 16


class LocalStation:
    """Answers for this machine. Close it, so that no port stays open."""

    def __init__(self) -> None:
        self._opened: OpenedPorts | None = None

    def ask(self, question: Ask) -> Answer:
        """Do what is asked, now."""
        match question:
            case Introduce():
                return Introduction(machine=read_environment().machine, hostname=socket.gethostname())
            case TakeFacts(names=names):
                return FactsTaken(facts=take_facts(names_wanted=names))
            case OpenPorts(address=address, num_ports=num_ports, word=word):
                self.close()
                self._opened = OpenedPorts(address, min(num_ports, _MOST_PORTS), word)
                return PortsOpen(
                    ports=self._opened.ports, datagram_port=self._opened.datagram_port, free_port=free_port(address)
                )
            case Dial():
                return Dialled(link=dial(question))
            case Reduce():
                return Reduced(reduction=reduce_in_subprocess(question))
            case ClosePorts():
                self.close()
        return Done()

    def close(self) -> None:
        """Stop listening."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
