"""A host's process: its gate with the service behind it, lighthouses, this machine's agent, the roster for people."""

import asyncio
import contextlib
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from potluck.core.errors import MeetingError, PotluckError
from potluck.gates.identity import load_or_make
from potluck.gates.process import GateProcess
from potluck.machine.facts import Facts as Snapshot
from potluck.meeting.behind_gate import BehindGate, bind_service
from potluck.meeting.bundle import BundleCache
from potluck.meeting.discovery import announcing
from potluck.meeting.door import Door
from potluck.meeting.facts import introduce
from potluck.meeting.gating import as_settings, link_reports
from potluck.meeting.home import Home, Membership
from potluck.meeting.invitation import Invitation, fingerprint_of
from potluck.meeting.lighthouses import Lighthouses
from potluck.meeting.local_agent import GOODBYE
from potluck.meeting.networks import Interface, best_first, find_interface, read_interfaces
from potluck.meeting.point import MeetingPoint
from potluck.meeting.roster import Roster
from potluck.meeting.service import make_service
from potluck.meeting.token import load_or_make_token, write_metrics_key
from potluck.meeting.wire import GateOrders, Reach

_TICK_S = 1.0
_TROUBLE_S = 10.0
_AGENT_END_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """What `potluck host` is told."""

    machine: str
    port: int
    runs_dir: Path
    address: str | None = None
    advertised: str | None = None
    """What others dial to reach the port, where that is no address of this machine."""
    can_train: bool = True
    devices: list[str] | None = None
    threads: int | None = None
    is_announced: bool = True


class Host:
    """Everything that the host's process holds. `serve` runs until it is asked to end."""

    def __init__(self, home: Home, options: HostOptions, seen: Snapshot) -> None:
        self._home = home
        self._options = options
        self.interfaces = choose_interfaces(options.address)
        self._sockets = [bind(interface.address, options.port) for interface in self.interfaces]
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
        roster = Roster(home.host_dir / "roster.json")
        self._credential = roster.enrol(facts)
        reach = Reach(addresses=[interface.address for interface in self.interfaces], port=options.port)
        roster.machines[options.machine].reach = reach
        if not options.can_train:
            roster.machines[options.machine].devices = []
        self._gate = GateProcess(home.identity_dir, self._sockets, _tell)
        self._lighthouses = Lighthouses(roster.address_of(options.machine), str(self._gate.socket))
        self.point = MeetingPoint(
            folder=home.host_dir,
            facts=facts,
            roster=roster,
            runs_dir=options.runs_dir.absolute(),
            lighthouses=self._lighthouses,
        )
        door = Door(
            token=self._token,
            fingerprint=self._fingerprint,
            facts=facts,
            roster=roster,
        )
        self._app = make_service(door=door, point=self.point, bundles=BundleCache(home.host_dir / "bundles"))
        self._ending = asyncio.Event()
        self._told_gate: GateOrders | None = None

    def invitations(self) -> list[tuple[Invitation, str]]:
        """One for each address, best first, with the reason."""
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

    async def serve(self, show: Callable[[], None]) -> None:
        """Serve until a signal; then this machine's workers finish their step first, while the service still hears."""
        config = uvicorn.Config(
            self._app,
            http=BehindGate,
            log_level="warning",
            access_log=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
            server_header=False,
            proxy_headers=False,
        )
        server = _Server(config)
        service = bind_service(self._gate.folder / "service")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._ending.set)
        self._remember_this_machine()
        self.point.changes.first = self._tell_gate
        self._gate.start()
        self._tell_gate()
        serving = asyncio.create_task(server.serve(sockets=[service]))
        ticking = asyncio.create_task(self._tick(show))
        relighting = asyncio.create_task(asyncio.to_thread(self._relight))
        async with announcing(self._options, self.interfaces, self._fingerprint):
            agent = self._start_agent() if self._options.can_train else None
            try:
                await self._ending.wait()
            finally:
                if agent is not None:
                    await asyncio.to_thread(_end_agent, agent)
                ticking.cancel()
                server.should_exit = True
                await serving
                await relighting
                self._lighthouses.stop_all()
                await asyncio.to_thread(self._gate.close)

    def end(self) -> None:
        self._ending.set()

    def _relight(self) -> None:
        self.point.relight()
        self._lighthouses.warm()

    async def _tick(self, show: Callable[[], None]) -> None:
        while True:
            try:
                self.point.roster.machines[self._options.machine].links = link_reports(self._gate)
                self.point.tick()
                show()
            except (PotluckError, OSError) as error:  # a full disk, a folder that was moved: the host stays
                sys.stderr.write(f"potluck host: {error}\n")
                await asyncio.sleep(_TROUBLE_S)
            await self.point.changes.wait(_TICK_S)

    def _tell_gate(self) -> None:
        """This machine's gate hears before the others what they are about to hear."""
        orders = self.point.gate_orders()
        if orders != self._told_gate:
            self._told_gate = orders
            service = str(self._gate.folder / "service")
            self._gate.update(as_settings(orders, self._options.machine, service=service))

    def _remember_this_machine(self) -> None:
        """The host's machine is on the roster without a join: its commands and its agent need a credential too."""
        self._home.remember(
            Membership(
                machine=self._options.machine,
                host=self._options.machine,
                address=self.interfaces[0].address,
                port=self._options.port,
                fingerprint=self._fingerprint.hex(),
                credential=self._credential,
            )
        )

    def _start_agent(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "potluck.meeting.local_agent", str(self._home.folder.absolute())]
        command += ["--gate", str(self._gate.socket)]
        if self._options.devices:
            command += ["--devices", ",".join(self._options.devices)]
        if self._options.threads:
            command += ["--threads", str(self._options.threads)]
        # Its stdin is the sign of this process's life: when it ends, the agent leaves. The terminal shows the roster.
        with (self._home.host_dir / "agent.log").open("wb") as log:
            return subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )


class _Server(uvicorn.Server):
    """uvicorn, with the signals left to the host."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def choose_interfaces(address: str | None) -> list[Interface]:
    """Where to listen: at the address that was asked for, or at every one that other machines could reach."""
    if address is not None:
        return [find_interface(address)]
    found = best_first(read_interfaces())
    if not found:
        raise MeetingError(
            "this machine has no address that others could reach",
            fix="connect it to the network; to try Potluck on this machine alone: potluck train",
        )
    return found


def bind(address: str, port: int) -> socket.socket:
    """A listening socket, or a word about who has the port."""
    try:
        return socket.create_server((address, port), backlog=512)
    except OSError as error:
        raise MeetingError(
            f"port {port} of {address} cannot be used: {(error.strerror or str(error)).lower()}",
            fix=f"see who has it: ss -ltnp 'sport = :{port}'; or choose another: potluck host --port {port + 1}",
        ) from None


def _end_agent(agent: subprocess.Popen[bytes]) -> None:
    assert agent.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended already
        agent.stdin.write(GOODBYE)
        agent.stdin.close()
    try:
        agent.wait(_AGENT_END_S)
    except subprocess.TimeoutExpired:
        agent.kill()
        agent.wait()


def _tell(text: str) -> None:
    sys.stderr.write(f"potluck host: {text}\n")
