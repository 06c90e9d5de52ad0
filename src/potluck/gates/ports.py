"""The ports of runs: those that workers of this machine have open, and stand-ins for those of other machines."""

import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from potluck.gates.loopback import address_of, host_address
from potluck.gates.messages import Kind, Ports, Settings


class StandIn(NamedTuple):
    """A port of another machine, on which this machine's gate listens in its place."""

    machine: str
    run: str
    port: int
    address: str = ""


class ExposedPorts:
    """Ports that processes of this machine have exposed, by their conversation with the gate."""

    def __init__(self) -> None:
        self._by_conversation: dict[int, list[tuple[str, dict[int, Kind]]]] = {}
        # Higher than any version of an earlier gate process: answers to that process may still arrive.
        self.version = time.time_ns()

    def add(self, conversation: int, run: str, ports: dict[int, Kind]) -> None:
        self._by_conversation.setdefault(conversation, []).append((run, ports))
        self.version += 1

    def drop(self, conversation: int) -> set[str]:
        """Forget the ports of a conversation; the runs that they belonged to."""
        self.version += 1
        return {run for run, _ in self._by_conversation.pop(conversation, [])}

    def of(self, run: str) -> dict[int, Kind]:
        found: dict[int, Kind] = {}
        for exposed in self._by_conversation.values():
            for name, ports in exposed:
                if name == run:
                    found |= ports
        return found

    def for_machine(self, machine: str, settings: Settings, *, asks: bool) -> Ports:
        """The announcement for a machine: the ports of all runs that it has a part in."""
        runs = {run: ports for run in settings.runs if in_run(settings, run, machine) and (ports := self.of(run))}
        return Ports(version=self.version, runs=runs, asks=asks)


def in_run(settings: Settings, run: str, machine: str) -> bool:
    """Whether a machine has a part in a run: it is a member, and trains or hosts."""
    is_member = any(member.machine == machine for member in settings.members)
    return is_member and run in settings.runs and (machine in settings.runs[run] or machine == settings.host)


def address_in(settings: Settings, machine: str) -> str:
    """A member's loopback address, the same on every machine; empty if the machine is no member."""
    number = next((one.number for one in settings.members if one.machine == machine), 0)
    return address_of(settings.block, number) if number else ""


def wanted_stand_ins(
    settings: Settings, announced: Mapping[str, Ports], here: Iterable[str], own: ExposedPorts | None = None
) -> set[StandIn]:
    """Stand-ins for ports that this machine's workers may dial; machines on the same loopback, `here`, need none.

    The host's lighthouses have stand-ins at the host's address on every machine, also on the host's, whose `own` ports
    they are.
    """
    mine = {run for run, machines in settings.runs.items() if settings.machine in machines}
    members = {member.machine for member in settings.members} - {settings.machine, *here}
    wanted = {
        StandIn(machine, run, port, _address_for(settings, machine, kind))
        for machine, told in announced.items()
        if machine in members
        for run, ports in told.runs.items()
        if run in mine and in_run(settings, run, machine)
        for port, kind in ports.items()
        if kind != "host" or machine == settings.host
    }
    if own is not None and settings.machine == settings.host:
        for run in settings.runs:
            ports = [port for port, kind in own.of(run).items() if kind == "host"]
            wanted |= {StandIn(settings.machine, run, port, host_address(settings.block)) for port in ports}
    return wanted


def _address_for(settings: Settings, machine: str, kind: Kind) -> str:
    return host_address(settings.block) if kind == "host" else address_in(settings, machine)


class StandIns:
    """The stand-ins that are open, with their listening sockets, and those whose ports are taken."""

    def __init__(self, listen: Callable[[StandIn, socket.socket], Callable[[], None]]) -> None:
        self._listen = listen
        self._open: dict[StandIn, Callable[[], None]] = {}
        self.taken: set[StandIn] = set()
        self._is_closed = False

    def settle(self, wanted: set[StandIn]) -> None:
        """Open the wanted stand-ins that are not open, and close the open ones that are not wanted."""
        if self._is_closed:  # a worker's line ends after it: its ports are not wanted, but others' would seem so
            return
        for gone in self._open.keys() - wanted:
            self._open.pop(gone)()
        self.taken &= wanted
        for one in sorted(wanted - self._open.keys()):
            try:
                listener = socket.create_server((one.address, one.port))
            except OSError:
                self.taken.add(one)
                continue
            self.taken.discard(one)
            self._open[one] = self._listen(one, listener)

    def close(self) -> None:
        """Close all of them, for good."""
        self._is_closed = True
        for end in self._open.values():
            end()
        self._open.clear()
