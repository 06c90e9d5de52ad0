"""The meeting point: the host's coordinator, its HTTP service and lighthouses, behind a gate that another part owns."""

import asyncio
import contextlib
import gc
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from potluck.core.words import listed
from potluck.gates.file_limit import raise_file_limit
from potluck.gates.loopback import lighthouse_address
from potluck.gates.owner_line import OwnerLine
from potluck.meeting.host.admission import Door
from potluck.meeting.host.behind_gate import BehindGate
from potluck.meeting.host.closing import Closing
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.keeping import ReignKeeper
from potluck.meeting.host.lighthouses import Lighthouses
from potluck.meeting.host.reign import Reign
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.service import make_service
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.finding import Elsewhere
from potluck.meeting.transfer.bundle import BundleCache
from potluck.meeting.wire import Introduction

KEEP_ALIVE_S = 30
_TICK_S = 1.0
_READ_EVERY_S = 0.9
_PAUSE_S = 9.0  # for a step, its checkpoint, and sending both to the host
_PAUSE_LOOK_S = 0.2
_LAST_ANSWER_S = 0.5
_WARM_LATER_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeetingPlace:
    """Where a meeting point stands, and as whom."""

    folder: Path
    """The host's folder, ~/.potluck/host."""
    runs_dir: Path
    gate: str
    """The socket of this machine's gate."""
    facts: Introduction
    token: bytes
    fingerprint: bytes
    install: str = ""


class MeetingPoint:
    """`serve` runs until `end` is called, or another machine is the host."""

    def __init__(
        self,
        place: MeetingPlace,
        roster: MachineRoster,
        reign: Reign,
        ballots: BallotFile,
        tell: Callable[[str], None],
        *,
        lighthouses: Lighthouses | None = None,
    ) -> None:
        self._tell = tell
        self._lighthouses = lighthouses or Lighthouses(lighthouse_address(roster.block), place.gate)
        self.coordinator = Coordinator(
            folder=place.folder,
            facts=place.facts,
            roster=roster,
            runs_dir=place.runs_dir.absolute(),
            lighthouses=self._lighthouses,
            tell=tell,
            reign=reign,
            token=place.token,
        )
        self.coordinator.install = place.install
        door = Door(
            token=place.token,
            fingerprint=place.fingerprint,
            facts=place.facts,
            roster=roster,
            install=place.install,
        )
        service = make_service(door=door, coordinator=self.coordinator, bundles=BundleCache(place.folder / "bundles"))
        self._app = Closing(service, place.facts.machine)
        self._keeper = ReignKeeper(self.coordinator, ballots, OwnerLine(place.gate), place.folder)
        self._ending = asyncio.Event()
        self._is_over = threading.Event()
        self._is_hurried = False

    @property
    def replaced_by(self) -> str | None:
        """The machine that is the host now in place of this one."""
        return self.coordinator.succession.reign.replaced_by

    @property
    def elsewhere(self) -> Elsewhere | None:
        """The same machine, with its term."""
        return self.coordinator.succession.reign.newer

    @property
    def is_ending(self) -> bool:
        return self._ending.is_set()

    async def serve(
        self, service: socket.socket, each_second: Callable[[], None], farewell: Callable[[], Awaitable[None]]
    ) -> None:
        """Serve until `end`, then pause all runs after their step; or until another machine is the host.

        `service` is a listening Unix socket, to which this machine's gate brings HTTP clients.
        `each_second` is called once a second; `farewell` at the end, while the service still answers.
        """
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
        asyncio.get_running_loop().set_exception_handler(self._note_trouble)
        raise_file_limit()
        serving = asyncio.create_task(server.serve(sockets=[service]))
        ticking = asyncio.create_task(self._tick(each_second))
        self._keeper.begin()
        keeping = asyncio.create_task(self._keeper.keep())
        # A daemon thread: it imports torch, and the host may be asked to end before that is done.
        threading.Thread(target=self._relight, name="potluck-relight", daemon=True).start()
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait([ending, keeping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self.replaced_by is None:
                await self._pause()
                ticking.cancel()
                await farewell()
            else:
                self._lighthouses.stop_all()
                await asyncio.sleep(_LAST_ANSWER_S)  # the command that asked for the handover gets its answer
            for task in (ticking, keeping, ending):
                task.cancel()
            self._is_over.set()
            self._keeper.close()
            self._app.close()
            server.should_exit = True
            await serving
            self._lighthouses.stop_all()

    def end(self) -> None:
        """The first call ends the host in order; a second call makes it not wait for its runs."""
        if self._ending.is_set():
            self._is_hurried = True
            self.coordinator.changes.tell()
        self._ending.set()

    async def _pause(self) -> None:
        """Pause every run, and wait up to _PAUSE_S until all have ended their step and sent their files."""
        self.coordinator.succession.reign.retire()  # nobody shall take the place of a host that ends in order
        self.coordinator.changes.tell()
        paused, plain = self.coordinator.pause_runs()
        if not paused and not plain:
            return
        hurry = "Ctrl-C again ends at once"
        if paused:
            runs = f"run {paused[0]} pauses" if len(paused) == 1 else f"runs {', '.join(paused)} pause"
            self._tell(f"{runs} after the step, to go on when potluck host starts here again; {hurry}")
        if plain:
            ends = f"{listed(plain)} cannot go on without the host, and ends"
            self._tell(f"{ends}: --plain knows no checkpoints; {hurry}")
        deadline = asyncio.get_running_loop().time() + _PAUSE_S
        while not self.coordinator.are_runs_paused() and not self._is_hurried:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                late = "not all machines have ended their step and sent its state"
                self._tell(f"{late}: they keep it until the host is back")
                return
            await self.coordinator.changes.wait(min(left_s, _PAUSE_LOOK_S))

    def _relight(self) -> None:
        """Start the lighthouses of unfinished runs on the ports that their workers know; later import torch.

        Workers that meet at these lighthouses need the processor now, and the next run will be asked for later.
        """
        has_runs = False
        with self.coordinator.troubles.survived("the lighthouses of runs that go on"):
            for record in self.coordinator.state.unfinished():
                if record.task.is_plain:
                    continue  # its workers meet at the store of rank 0
                self._lighthouses.start(record.id, record.lighthouse_port)
                has_runs = True
        if has_runs and self._is_over.wait(_WARM_LATER_S):
            return
        self._lighthouses.warm()
        gc.freeze()  # torch's million objects never become garbage: the collector need not scan them again

    async def _tick(self, each_second: Callable[[], None]) -> None:
        read_at = float("-inf")
        while True:
            # A full disk, a folder that was moved or a defect in Potluck must not end the host: it is printed once.
            with self.coordinator.troubles.survived("this second's look at all machines"):
                if time.monotonic() - read_at > _READ_EVERY_S:
                    read_at = time.monotonic()
                    await self.coordinator.read_runs()
                self.coordinator.tick()
            each_second()
            await self.coordinator.changes.wait(_TICK_S)

    def _note_trouble(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The event loop's handler of errors that no task awaits, such as a broken connection: prints each once."""
        error = context.get("exception")
        if isinstance(error, Exception):
            self.coordinator.troubles.note(str(context.get("message", "a connection")), error)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the host handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
