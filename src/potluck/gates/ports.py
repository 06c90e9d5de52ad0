"""Which ports belong to which run: those that workers here have open, and those of other machines' workers."""

import errno
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from potluck.gates.loopback import address_of
from potluck.gates.messages import Kind, Ports, Settings


class StandIn(NamedTuple):
    """A port of another machine's, listened on here in its place."""

    machine: str
    run: str
    port: int
    address: str = ""


class ExposedPorts:
    """What processes of this machine have open, by the conversation in which they told it."""

    def __init__(self) -> None:
        self._told: dict[int, list[tuple[str, dict[int, Kind]]]] = {}
        # Higher than any that a gate before this one has told: its answers may still be on their way.
        self.version = time.time_ns()

    def add(self, conversation: int, run: str, ports: dict[int, Kind]) -> None:
        self._told.setdefault(conversation, []).append((run, ports))
        self.version += 1

    def drop(self, conversation: int) -> set[str]:
        """The runs whose ports are gone with a conversation."""
        self.version += 1
        return {run for run, _ in self._told.pop(conversation, [])}

    def of(self, run: str) -> dict[int, Kind]:
        found: dict[int, Kind] = {}
        for told in self._told.values():
            for name, ports in told:
                if name == run:
                    found |= ports
        return found

    def for_machine(self, machine: str, settings: Settings, *, asks: bool) -> Ports:
        """All that this machine may know of."""
        runs = {run: ports for run in settings.runs if in_run(settings, run, machine) and (ports := self.of(run))}
        return Ports(version=self.version, runs=runs, asks=asks)


def in_run(settings: Settings, run: str, machine: str) -> bool:
    """Whether a machine has a part in a run: it is a member, and trains or hosts."""
    is_member = any(member.machine == machine for member in settings.members)
    return is_member and run in settings.runs and (machine in settings.runs[run] or machine == settings.host)


def address_in(settings: Settings, machine: str) -> str:
    """A member's loopback address, on every machine; empty if it is none."""
    number = next((one.number for one in settings.members if one.machine == machine), 0)
    return address_of(settings.block, number) if number else ""


def wanted_stand_ins(settings: Settings, announced: Mapping[str, Ports], here: Iterable[str]) -> set[StandIn]:
    """Ports of others that this machine's workers may dial; machines on the same loopback are dialled as they are."""
    mine = {run for run, machines in settings.runs.items() if settings.machine in machines}
    members = {member.machine for member in settings.members} - {settings.machine, *here}
    return {
        StandIn(machine, run, port, address_in(settings, machine))
        for machine, told in announced.items()
        if machine in members
        for run, ports in told.runs.items()
        if run in mine and in_run(settings, run, machine)
        for port in ports
    }


class StandIns:
    """Listening sockets in other machines' places."""

    def __init__(self, listen: Callable[[StandIn, socket.socket], Callable[[], None]]) -> None:
        self._listen = listen
        self._open: dict[StandIn, Callable[[], None]] = {}
        self.taken: dict[StandIn, str] = {}

    def settle(self, wanted: set[StandIn]) -> None:
        """Open what is wanted and not open, close what is not wanted."""
        for gone in self._open.keys() - wanted:
            self._open.pop(gone)()
        self.taken = {one: why for one, why in self.taken.items() if one in wanted}
        for one in sorted(wanted - self._open.keys()):
            try:
                listener = socket.create_server((one.address, one.port))
            except OSError as error:
                is_taken = error.errno == errno.EADDRINUSE
                self.taken[one] = "another program has it" if is_taken else str(error.strerror or error).lower()
                continue
            self.taken.pop(one, None)
            self._open[one] = self._listen(one, listener)

    def close(self) -> None:
        for end in self._open.values():
            end()
        self._open.clear()
