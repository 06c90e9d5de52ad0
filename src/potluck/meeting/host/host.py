"""The host's process: its gate with the HTTP service behind it, the lighthouses, and this machine's agent."""

import asyncio
import contextlib
import gc
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from potluck.core.printable import printable
from potluck.core.words import listed
from potluck.gates.file_limit import raise_file_limit
from potluck.gates.identity import Identity, load_or_make
from potluck.gates.process import GateProcess
from potluck.machine.facts import Facts as Snapshot
from potluck.meeting.access.gating import as_settings, link_reports
from potluck.meeting.access.install_lines import install_lines
from potluck.meeting.access.introduction import introduce
from potluck.meeting.access.invitation import Invitation, fingerprint_of
from potluck.meeting.access.token import load_or_make_token, write_metrics_key
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.host.admission import Door
from potluck.meeting.host.agent_process import AgentProcess
from potluck.meeting.host.announcing import announcing
from potluck.meeting.host.behind_gate import BehindGate, bind_service
from potluck.meeting.host.closing import Closing
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.last_resort import EndBy
from potluck.meeting.host.lighthouses import Lighthouses
from potluck.meeting.host.listening import bind, choose_interfaces
from potluck.meeting.host.offering import as_handed_out, try_to_offer_wheel
from potluck.meeting.host.reported_links import ReportedLinks
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.service import make_service
from potluck.meeting.transfer.bundle import BundleCache
from potluck.meeting.wire import GateOrders, Reach

KEEP_ALIVE_S = 30
_TICK_S = 1.0
_READ_EVERY_S = 0.9
_PAUSE_S = 9.0  # for a step, its checkpoint, and sending both to the host
_END_S = 14.0
_PAUSE_LOOK_S = 0.2


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


class Host:
    """Everything that the host's process holds. `serve` runs until `end` is called."""

    def __init__(self, home: Home, options: HostOptions, seen: Snapshot) -> None:
        self._home = home
        self._options = options
        self.interfaces = choose_interfaces(options.address, seen)
        sockets = [bind(interface.address, options.port) for interface in self.interfaces]
        identity = load_or_make(home.identity_dir)
        self._fingerprint = fingerprint_of(ssl.PEM_cert_to_DER_cert(identity.certificate))
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
        roster = MachineRoster(home.host_dir / "roster.json")
        tell_of_new_certificate(identity, roster, options.machine, _tell)
        self._credential = roster.enrol(facts, self._kept_credential())
        reach = Reach(addresses=[interface.address for interface in self.interfaces], port=options.port)
        roster.change(options.machine, reach=reach, devices=None if options.can_train else [])
        self._gate = GateProcess(home.identity_dir, sockets, _tell)
        self._lighthouses = Lighthouses(roster.address_of(options.machine), str(self._gate.socket))
        self.coordinator = Coordinator(
            folder=home.host_dir,
            facts=facts,
            roster=roster,
            runs_dir=options.runs_dir.absolute(),
            lighthouses=self._lighthouses,
            tell=_tell,
        )
        self._wheel = try_to_offer_wheel(home.host_dir, self._token, facts.versions, _tell)
        if self._wheel is not None:
            first = self.invitations()[0][0]
            self.coordinator.install = self._wheel.in_place(first.address, first.port)
        door = Door(
            token=self._token,
            fingerprint=self._fingerprint,
            facts=facts,
            roster=roster,
            install=self.coordinator.install,
        )
        service = make_service(door=door, coordinator=self.coordinator, bundles=BundleCache(home.host_dir / "bundles"))
        self._app = Closing(service, options.machine)
        self._ending = asyncio.Event()
        self._is_hurried = False
        self._agent = AgentProcess(self._agent_arguments(), home.host_dir / "agent.log", _tell)
        self._told_gate: GateOrders | None = None

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

    def install_lines(self) -> tuple[str, ...]:
        """Lines for a machine without Potluck, to choose one from; none if Potluck is not installed as a package."""
        return () if self._wheel is None else install_lines(self._wheel, self.invitations()[0][0])

    async def serve(self, show: Callable[[], None]) -> None:
        """Serve until a signal or `end`; then pause all runs after their step, while the service still answers."""
        config = uvicorn.Config(
            self._app,
            http=BehindGate,
            ws="none",
            log_level="critical",  # strangers' invalid requests are not news; Troubles prints the service's own errors
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
            server_header=False,
            proxy_headers=False,
        )
        server = _Server(config)
        service = bind_service(self._gate.folder / "service")
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._note_trouble)
        raise_file_limit()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.end)
        self._remember_this_machine()
        self.coordinator.changes.first = self._tell_gate
        self._gate.start()
        self._tell_gate()
        serving = asyncio.create_task(server.serve(sockets=[service]))
        ticking = asyncio.create_task(self._tick(show))
        # A daemon thread: it imports torch, and the host may be asked to end before that is done.
        threading.Thread(target=self._relight, name="potluck-relight", daemon=True).start()
        async with self._announced():
            if self._options.can_train:
                self._agent.start()
            try:
                await self._ending.wait()
            finally:
                EndBy(_END_S, _tell).start()
                await self._pause()
                ticking.cancel()
                await asyncio.to_thread(self._agent.end)
                self._app.close()
                server.should_exit = True
                await serving
                self._lighthouses.stop_all()
                await asyncio.to_thread(self._gate.close)

    def _announced(self) -> contextlib.AbstractAsyncContextManager[None]:
        if not self._options.is_announced:
            return contextlib.nullcontext()
        addresses = [interface.address for interface in self.interfaces]
        return announcing(self._options.machine, self._options.port, addresses, self._fingerprint)

    def end(self) -> None:
        """The first call ends the host in order; a second call makes it not wait for its runs."""
        if self._ending.is_set():
            self._is_hurried = True
            self.coordinator.changes.tell()
        self._ending.set()

    async def _pause(self) -> None:
        """Pause every run, and wait up to _PAUSE_S until all have ended their step and sent their files."""
        paused, plain = self.coordinator.pause_runs()
        if not paused and not plain:
            return
        hurry = "Ctrl-C again ends at once"
        if paused:
            runs = f"run {paused[0]} pauses" if len(paused) == 1 else f"runs {', '.join(paused)} pause"
            _tell(f"{runs} after the step, to go on when potluck host starts here again; {hurry}")
        if plain:
            _tell(f"{listed(plain)} cannot go on without the host, and ends: --plain knows no checkpoints; {hurry}")
        deadline = asyncio.get_running_loop().time() + _PAUSE_S
        while not self.coordinator.are_runs_paused() and not self._is_hurried:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                _tell("not all machines have ended their step and sent its state: they keep it until the host is back")
                return
            await self.coordinator.changes.wait(min(left_s, _PAUSE_LOOK_S))

    def _relight(self) -> None:
        """Start the lighthouses of unfinished runs on the ports that their workers know; then import torch."""
        with self.coordinator.troubles.survived("the lighthouses of runs that go on"):
            for record in self.coordinator.state.unfinished():
                if record.task.is_plain:
                    continue  # its workers meet at the store of rank 0
                self._lighthouses.start(record.id, record.lighthouse_port)
        self._lighthouses.warm()
        gc.freeze()  # torch's million objects never become garbage: the collector need not scan them again

    def _kept_credential(self) -> str | None:
        """This machine's credential from before a restart of the host, so that its commands can keep it."""
        known = self._home.membership()
        is_own = known is not None and known.fingerprint == self._fingerprint.hex()
        return known.credential if known is not None and is_own and known.machine == self._options.machine else None

    async def _tick(self, show: Callable[[], None]) -> None:
        read_at = float("-inf")
        while True:
            # A full disk, a folder that was moved or a defect in Potluck must not end the host: it is printed once.
            with self.coordinator.troubles.survived("this second's look at all machines"):
                self.coordinator.roster.change(self._options.machine, links=ReportedLinks.of(link_reports(self._gate)))
                if time.monotonic() - read_at > _READ_EVERY_S:
                    read_at = time.monotonic()
                    await self.coordinator.read_runs()
                self.coordinator.tick()
            with self.coordinator.troubles.survived("the list of machines"):
                show()
            with self.coordinator.troubles.survived("this machine's agent"):
                if not self._ending.is_set():
                    self._agent.keep()
            await self.coordinator.changes.wait(_TICK_S)

    def _note_trouble(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The event loop's handler of errors that no task awaits, such as a broken connection: prints each once."""
        error = context.get("exception")
        if isinstance(error, Exception):
            self.coordinator.troubles.note(str(context.get("message", "a connection")), error)

    def _tell_gate(self) -> None:
        """Send new settings to this machine's gate, before the other machines get them with their orders."""
        orders = self.coordinator.shared.gate()
        if orders != self._told_gate:
            self._told_gate = orders
            service = str(self._gate.folder / "service")
            wheel = as_handed_out(self._wheel, self._home.host_dir)
            self._gate.update(as_settings(orders, self._options.machine, service=service, handed_out=wheel))

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
        if self._options.devices:
            arguments += ["--devices", ",".join(self._options.devices)]
        if self._options.threads:
            arguments += ["--threads", str(self._options.threads)]
        return arguments


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the host handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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
