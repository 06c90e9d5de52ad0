"""Letters about ports: gates announce the ports of their workers, and answer which ports they stand in for."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

from potluck.gates.links import Link
from potluck.gates.messages import Body, Expose, Exposed, Kind, Ports, Settings, Standing, Undelivered
from potluck.gates.ports import ExposedPorts, StandIn, StandIns, in_run, wanted_stand_ins

_STAND_S = 3.0
_MOST_CHANGES = 1_000_000  # a gate process changes its ports less often than this in its life


class PortAnnouncements:
    """Announces this machine's ports to the machines of their run, and stands in for the ports that others announce."""

    def __init__(
        self,
        links: Mapping[str, Link],
        settings: Callable[[], Settings],
        post: Callable[[str, Body], bool],
        listen: Callable[[StandIn, socket.socket], Callable[[], None]],
    ) -> None:
        self._links = links
        self._settings = settings
        self._post = post
        self.exposed = ExposedPorts()
        self.announced: dict[str, Ports] = {}
        self._stand_ins = StandIns(listen)
        self._standing: dict[str, Standing] = {}
        self._last_sent: dict[str, Standing] = {}
        self._undelivered: set[str] = set()
        self._letter_came = asyncio.Event()

    async def expose(self, conversation: int, asked: Expose) -> Exposed:
        """Announce a worker's ports; if it waits, answer once the run's machines stand in for them, or cannot."""
        self.exposed.add(conversation, asked.run, asked.ports)
        if "host" in asked.ports.values():
            self.settle()
        others = [name for name in self._links if in_run(self._settings(), asked.run, name)]
        self._undelivered.difference_update(others)
        for name in others:
            self.announce(name)
        version, deadline = self.exposed.version, asyncio.get_running_loop().time() + _STAND_S
        while asked.waits:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0 or all(self._has_settled(name, asked.run, version) for name in others):
                break
            self._letter_came.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._letter_came.wait(), left_s)
        taken = {
            port: name
            for name, standing in self._standing.items()
            if name in others
            for port in standing.taken
            if port in asked.ports
        }
        return Exposed(taken=taken)

    def _has_settled(self, machine: str, run: str, version: int) -> bool:
        link, standing = self._links.get(machine), self._standing.get(machine)
        if link is None or link.is_here or machine in self._undelivered:
            return True
        return standing is not None and standing.version >= version and run in standing.runs

    def withdraw(self, conversation: int) -> None:
        """Forget the ports of a worker that has ended, and announce that to the machines of its runs."""
        runs = self.exposed.drop(conversation)
        self.settle()
        for name in self._links:
            if any(in_run(self._settings(), run, name) for run in runs):
                self.announce(name)

    def announce(self, machine: str, *, asks: bool = False) -> None:
        """Send a machine all ports of the runs that it has a part in; `asks` requests its ports in return."""
        self._post(machine, self.exposed.for_machine(machine, self._settings(), asks=asks))

    def settle(self, asked: str = "") -> None:
        """Open and close stand-ins as announced; send Standing to `asked` and wherever it has changed."""
        settings = self._settings()
        here = [name for name, link in self._links.items() if link.is_here]
        self._stand_ins.settle(wanted_stand_ins(settings, self.announced, here, self.exposed))
        for name, told in self.announced.items():
            taken = tuple(sorted(one.port for one in self._stand_ins.taken if one.machine == name))
            known = tuple(run for run in told.runs if in_run(settings, run, settings.machine))
            standing = Standing(version=told.version, runs=known, taken=taken)
            if (name == asked or self._last_sent.get(name) != standing) and self._post(name, standing):
                self._last_sent[name] = standing

    def kind_of(self, one: StandIn) -> Kind:
        """Whether another machine announced a port for control or bulk traffic; bulk if that is not known."""
        if one.machine == self._settings().machine:
            return self.exposed.of(one.run).get(one.port, "bulk")
        told = self.announced.get(one.machine)
        return "bulk" if told is None else told.runs.get(one.run, {}).get(one.port, "bulk")

    def take(self, sender: str, body: Ports | Standing | Undelivered) -> None:
        """Act on a letter about ports."""
        match body:
            case Ports():
                self._undelivered.discard(sender)
                known = self.announced.get(sender)
                # A relayed announcement may arrive after a newer one; a restarted gate counts from another number.
                if known is None or not 0 < known.version - body.version < _MOST_CHANGES:
                    self.announced[sender] = body
                self.settle(sender)
                if body.asks:
                    self.announce(sender)
            case Standing():
                self._standing[sender] = body
            case Undelivered():
                self._undelivered.add(sender)
        self._letter_came.set()

    def link_is_up(self, link: Link) -> None:
        """Exchange all ports anew with a machine whose link is up, and if it is the host, with all that lack a link."""
        self._undelivered.discard(link.machine)
        is_host = link.machine == self._settings().host
        for name, other in self._links.items():
            if other is link or (is_host and not other.is_up):
                # Letters of both sides may have been lost while the link was down.
                self._last_sent.pop(name, None)
                self.announce(name, asks=True)
        self.settle()
        self._letter_came.set()

    def forget(self, machine: str) -> None:
        for kept in (self.announced, self._standing, self._last_sent):
            kept.pop(machine, None)

    def close(self) -> None:
        self._stand_ins.close()
