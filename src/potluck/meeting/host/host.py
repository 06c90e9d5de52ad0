"""The host's process: its gate with the HTTP service behind it, the lighthouses, and this machine's agent."""

import asyncio
import contextlib
import signal
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from potluck.core.printable import printable
from potluck.gates.identity import Identity, load_or_make
from potluck.gates.owner_line import OwnerLine
from potluck.gates.process import GateProcess
from potluck.machine.facts import Facts as Snapshot
from potluck.meeting.access.gating import as_settings, link_reports
from potluck.meeting.access.install_lines import install_lines
from potluck.meeting.access.introduction import introduce
from potluck.meeting.access.invitation import Invitation, fingerprint_of
from potluck.meeting.access.token import load_or_make_token, write_metrics_key
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.host.agent_process import AgentProcess
from potluck.meeting.host.announcing import announcing
from potluck.meeting.host.behind_gate import bind_service
from potluck.meeting.host.last_resort import EndBy
from potluck.meeting.host.listening import bind, choose_interfaces
from potluck.meeting.host.meeting_point import MeetingPlace, MeetingPoint
from potluck.meeting.host.offering import as_handed_out, try_to_offer_wheel
from potluck.meeting.host.own_firewall import firewall_lines
from potluck.meeting.host.reign import Reign, SuccessionRule
from potluck.meeting.host.reported_links import ReportedLinks
from potluck.meeting.host.restoring import finish_takeover
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.troubles import Troubles
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.finding import Elsewhere, find_host, follow_host
from potluck.meeting.wire import GateOrders, Introduction, Reach

_END_S = 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """Options of `potluck host`."""

    machine: str
    port: int
    runs_dir: Path
    address: str | None = None
    advertised: str | None = None
    """The address that other machines dial, if it is not one of this machine's own."""
    can_train: bool = True
    devices: list[str] | None = None
    threads: int | None = None
    is_announced: bool = True
    succession: SuccessionRule = field(default_factory=SuccessionRule)


@dataclass(frozen=True, slots=True)
class _OwnMachine:
    """What this machine knows of itself."""

    seen: Snapshot
    facts: Introduction
    identity: Identity


class Host:
    """Everything that the host's process holds. `serve` runs until `end` is called."""

    def __init__(self, home: Home, options: HostOptions, seen: Snapshot) -> None:
        self._home = home
        self._options = options
        self.interfaces = choose_interfaces(options.address, seen)
        sockets = [bind(interface.address, options.port) for interface in self.interfaces]
        identity = load_or_make(home.identity_dir)
        self._fingerprint = fingerprint_of(ssl.PEM_cert_to_DER_cert(identity.certificate))
        self._ballots = BallotFile(home.succession_dir)
        finish_takeover(home, options.machine, self._ballots.ballot, identity)
        self._token = load_or_make_token(home.host_dir)
        write_metrics_key(home.host_dir, self._token)
        address = self.interfaces[0].address
        facts = introduce(
            seen,
            machine=options.machine,
            machine_id=home.machine_id(),
            address=address,
            network=self.interfaces[0].network,
            identity=identity,
            gate_port=options.port,
            can_train=options.can_train,
        )
        self._own = _OwnMachine(seen, facts, identity)
        self._gate = GateProcess(home.identity_dir, sockets, _tell)
        self._agent = AgentProcess(
            self._agent_arguments(), home.host_dir / "agent.log", _tell, lambda: self.point is None
        )
        self._told_gate: tuple[GateOrders, int] | None = None
        self.point: MeetingPoint | None = None
        """None while another machine is the host."""
        self._ending = asyncio.Event()
        self._wheel = try_to_offer_wheel(home.host_dir, self._token, facts.versions, _tell)

    def _open(self, roster: MachineRoster) -> MeetingPoint:
        """This machine is the host: open its meeting point, with the runs that it keeps."""
        options, home = self._options, self._home
        tell_of_new_certificate(self._own.identity, roster, options.machine, _tell)
        self._credential = roster.enrol(self._own.facts, self._kept_credential())
        reach = Reach(addresses=[interface.address for interface in self.interfaces], port=options.port)
        roster.change(options.machine, reach=reach, devices=None if options.can_train else [])
        first = self.invitations()[0][0]
        place = MeetingPlace(
            folder=home.host_dir,
            runs_dir=options.runs_dir,
            gate=str(self._gate.socket),
            facts=self._own.facts,
            token=self._token,
            fingerprint=self._fingerprint,
            install="" if self._wheel is None else self._wheel.in_place(first.address, first.port),
        )
        known = self._ballots.ballot.orders
        is_own = known is not None and known.host == options.machine
        reign = Reign(options.machine, options.succession, known.succession if known and is_own else None)
        return MeetingPoint(place, roster, reign, self._ballots, _tell)

    def invitations(self) -> list[tuple[Invitation, str]]:
        """One invitation for each address, best first, with a few words about the address."""
        places = [(interface.address, interface.reason) for interface in self.interfaces]
        if self._options.advertised is not None:
            places = [(self._options.advertised, "as advertised")]
        return [
            (
                Invitation(address=address, port=self._options.port, token=self._token, fingerprint=self._fingerprint),
                reason,
            )
            for address, reason in places
        ]

    @property
    def machine(self) -> str:
        return self._options.machine

    def obstacles(self) -> list[str]:
        """What keeps other machines from dialling this host, and what to type about it."""
        return firewall_lines(self._own.seen, self.interfaces, self._options.port)

    def status(self) -> dict[str, Any] | None:
        """Machines and runs for this host's screen; None while another machine is the host."""
        return None if self.point is None else self.point.coordinator.status(with_direct=False)

    def install_lines(self) -> tuple[str, ...]:
        """Lines for a machine without Potluck, to choose one from; none if Potluck is not installed as a package."""
        return () if self._wheel is None else install_lines(self._wheel, self.invitations()[0][0])

    async def serve(self, opened: Callable[[], None], show: Callable[[], None]) -> None:
        """Serve until a signal or `end`. When another machine becomes the host, this one goes on working for it.

        `opened` is called when this machine is the host; `show` once a second.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.end)
        self._gate.start()
        roster = MachineRoster(self._home.host_dir / "roster.json")
        if await self._find_newer_host(roster) is None:
            self.point = self._open(roster)
            self._remember_this_machine()
            self.point.coordinator.changes.first = self._tell_gate
            service = bind_service(self._gate.folder / "service")  # a client that comes from now on is answered
            self._tell_gate()
            opened()
            async with self._announced():
                if self._options.can_train:
                    self._agent.start()
                await self.point.serve(service, lambda: self._each_second(show), self._say_goodbye)
        if not self._ending.is_set():
            await self._work_for_another(show)
        await asyncio.to_thread(self._gate.close)

    def _announced(self) -> contextlib.AbstractAsyncContextManager[None]:
        if not self._options.is_announced:
            return contextlib.nullcontext()
        addresses = [interface.address for interface in self.interfaces]
        return announcing(self._options.machine, self._options.port, addresses, self._fingerprint)

    def end(self) -> None:
        """The first call ends the host in order; a second call makes it not wait for its runs."""
        if not self._ending.is_set():
            EndBy(_END_S, _tell).start()
        self._ending.set()
        if self.point is not None:
            self.point.end()

    async def _say_goodbye(self) -> None:
        await asyncio.to_thread(self._agent.end)

    async def _find_newer_host(self, roster: MachineRoster) -> str | None:
        """Another machine that is the host now, if this one was replaced while it was gone."""
        ballot, machine = self._ballots.ballot, self._options.machine
        if ballot.orders is None or ballot.orders.block != roster.block or machine not in roster.machines:
            return None
        orders, line = ballot.orders, OwnerLine(str(self._gate.socket))
        self._gate.update(as_settings(orders, machine, promised=ballot.promised))
        replaced = await asyncio.to_thread(find_host, line, orders)
        if replaced is None and orders.host != machine:
            replaced = Elsewhere(host=orders.host, term=orders.succession.term)
        if replaced is None:
            return None
        follow_host(self._home, self._ballots, replaced)
        return replaced.host

    async def _work_for_another(self, show: Callable[[], None]) -> None:
        """Another machine is the host: keep this machine's gate and agent, which follows that host, until `end`."""
        replaced_by, troubles = self._ballots.ballot.host, Troubles(_tell)
        if self.point is not None:
            elsewhere = self.point.elsewhere
            assert elsewhere is not None
            replaced_by, self.point = elsewhere.host, None
            if not self._agent.is_running:  # it finds out by itself otherwise
                with troubles.survived(f"noting that {replaced_by} is the host now"):  # the agent hears it again
                    follow_host(self._home, self._ballots, elsewhere)
        _tell(
            f"{replaced_by} is the host now; this machine works for it\n"
            f"  to make this machine the host again: potluck handover {self._options.machine}"
        )
        while not self._ending.is_set():
            show()
            with troubles.survived("this machine's agent"):
                if not self._agent.has_begun:  # where nothing is to be trained, too: this machine votes
                    self._agent.start()
                self._agent.keep()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ending.wait(), 1.0)
        await self._say_goodbye()

    def _each_second(self, show: Callable[[], None]) -> None:
        assert self.point is not None
        coordinator = self.point.coordinator
        with coordinator.troubles.survived("this machine's links"):
            links = ReportedLinks.of(link_reports(self._gate.links.links))
            coordinator.roster.change(self._options.machine, links=links)
        with coordinator.troubles.survived("the list of machines"):
            show()
        with coordinator.troubles.survived("this machine's agent"):
            if not self.point.is_ending:
                self._agent.keep()

    def _kept_credential(self) -> str | None:
        """This machine's credential from before a restart of the host, so that its commands can keep it."""
        known = self._home.membership()
        is_own = known is not None and known.fingerprint == self._fingerprint.hex()
        return known.credential if known is not None and is_own and known.machine == self._options.machine else None

    def _tell_gate(self) -> None:
        """Send new settings to this machine's gate, before the other machines get them with their orders."""
        assert self.point is not None
        if self.point.replaced_by is not None:
            return  # the agent follows the new host, and tells the gate
        orders, promised = self.point.coordinator.shared.gate(), self._ballots.ballot.promised
        if (orders, promised) != self._told_gate:
            self._told_gate = (orders, promised)
            service = str(self._gate.folder / "service")
            wheel = as_handed_out(self._wheel, self._home.host_dir)
            self._gate.update(
                as_settings(orders, self._options.machine, service=service, handed_out=wheel, promised=promised)
            )

    def _remember_this_machine(self) -> None:
        """Save a membership of this machine, which never joins itself: its commands and agent need a credential too."""
        self._home.remember(
            HostMembership(
                machine=self._options.machine,
                host=self._options.machine,
                address=self.interfaces[0].address,
                port=self._options.port,
                fingerprint=self._fingerprint.hex(),
                credential=self._credential,
            )
        )

    def _agent_arguments(self) -> list[str]:
        arguments = [str(self._home.folder.absolute()), "--gate", str(self._gate.socket)]
        arguments += ["--addresses", ",".join(interface.address for interface in self.interfaces)]
        if self._options.devices:
            arguments += ["--devices", ",".join(self._options.devices)]
        if self._options.threads:
            arguments += ["--threads", str(self._options.threads)]
        return arguments


def tell_of_new_certificate(
    identity: Identity, roster: MachineRoster, machine: str, tell: Callable[[str], None]
) -> None:
    """Print that the host's key was lost and made anew: the machines that have joined do not trust the new one."""
    others = sorted(roster.machines.keys() - {machine})
    if identity.is_new and others:
        tell(
            f"this host's key and certificate were not in {identity.key_file.parent} any more, and new ones were made: "
            f"{', '.join(others)} cannot trust this host until they join again\n"
            "  fix: on each of them: potluck join, with the line that this host prints now"
        )


def _tell(text: str) -> None:
    with contextlib.suppress(OSError):  # a log on a disk that is full
        sys.stderr.write(f"potluck host: {printable(text)}\n")
