"""A host's process: the service on its addresses, lighthouses, this machine's own agent, and the roster for people."""

import asyncio
import contextlib
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvicorn

from potluck.core.errors import MeetingError, PotluckError
from potluck.machine.facts import Facts as Snapshot
from potluck.meeting.bundle import BundleCache
from potluck.meeting.certificate import Certificate, load_or_make
from potluck.meeting.discovery import announcing
from potluck.meeting.door import Door
from potluck.meeting.facts import introduce, let_in
from potluck.meeting.home import Home, Membership
from potluck.meeting.invitation import Invitation
from potluck.meeting.lighthouses import Lighthouses
from potluck.meeting.local_agent import GOODBYE
from potluck.meeting.networks import Interface, best_first, find_interface, read_interfaces
from potluck.meeting.point import MeetingPoint
from potluck.meeting.roster import Roster
from potluck.meeting.service import make_service
from potluck.meeting.token import load_or_make_token, write_metrics_key

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
        self._certificate: Certificate = load_or_make(home.host_dir)
        self._token = load_or_make_token(home.host_dir)
        write_metrics_key(home.host_dir, self._token)
        address = self.interfaces[0].address
        facts = introduce(
            seen,
            machine=options.machine,
            machine_id=home.machine_id(),
            address=address,
            network=self.interfaces[0].network,
            can_train=options.can_train,
        )
        roster = Roster(home.host_dir / "roster.json")
        # Workers that joined by another address reach the lighthouse there too.
        self._lighthouses = Lighthouses(address if len(self.interfaces) == 1 else "0.0.0.0")  # noqa: S104
        self.point = MeetingPoint(
            folder=home.host_dir,
            facts=facts,
            roster=roster,
            runs_dir=options.runs_dir.absolute(),
            lighthouses=self._lighthouses,
        )
        door = Door(
            token=self._token,
            fingerprint=self._certificate.fingerprint,
            facts=facts,
            interfaces=self.interfaces,
            roster=roster,
            let_in=partial(let_in, seen),
        )
        self._app = make_service(door=door, point=self.point, bundles=BundleCache(home.host_dir / "bundles"))
        self._ending = asyncio.Event()

    def invitations(self) -> list[tuple[Invitation, str]]:
        """One for each address, best first, with the reason."""
        return [
            (
                Invitation(
                    address=interface.address,
                    port=self._options.port,
                    token=self._token,
                    fingerprint=self._certificate.fingerprint,
                ),
                interface.reason,
            )
            for interface in self.interfaces
        ]

    async def serve(self, show: Callable[[], None]) -> None:
        """Serve until a signal; then this machine's workers finish their step first, while the service still hears."""
        config = uvicorn.Config(
            self._app,
            log_level="warning",
            access_log=False,
            ssl_certfile=str(self._certificate.certificate_file),
            ssl_keyfile=str(self._certificate.key_file),
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
            server_header=False,
        )
        config.load()
        assert config.ssl is not None
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
        server = _Server(config)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._ending.set)
        self._enrol_this_machine()
        serving = asyncio.create_task(server.serve(sockets=self._sockets))
        ticking = asyncio.create_task(self._tick(show))
        relighting = asyncio.create_task(asyncio.to_thread(self._relight))
        async with announcing(self._options, self.interfaces, self._certificate.fingerprint):
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

    def end(self) -> None:
        self._ending.set()

    def _relight(self) -> None:
        self.point.relight()
        self._lighthouses.warm()

    async def _tick(self, show: Callable[[], None]) -> None:
        while True:
            try:
                self.point.tick()
                show()
            except (PotluckError, OSError) as error:  # a full disk, a folder that was moved: the host stays
                sys.stderr.write(f"potluck host: {error}\n")
                await asyncio.sleep(_TROUBLE_S)
            await self.point.changes.wait(_TICK_S)

    def _enrol_this_machine(self) -> None:
        """The host's machine is on the roster without a join: its commands and its agent need a credential too."""
        credential = self.point.roster.enrol(self.point.facts)
        if not self._options.can_train:
            self.point.roster.machines[self._options.machine].devices = []
        self._home.remember(
            Membership(
                machine=self._options.machine,
                host=self._options.machine,
                address=self.interfaces[0].address,
                port=self._options.port,
                fingerprint=self._certificate.fingerprint.hex(),
                credential=credential,
            )
        )

    def _start_agent(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "potluck.meeting.local_agent", str(self._home.folder.absolute())]
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
