"""A machine's sharing process for one run.

    python -m potluck.sharing.main --socket PATH

It reads SharingSettings as JSON lines from stdin, and writes SharingState as JSON lines to stdout. Workers ask for
bytes of files over the socket. When stdin ends, the agent has ended, and this process ends, too.
"""

import argparse
import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from potluck.core.errors import GateError, SharingError
from potluck.core.kept_process import StateWriter, run_until_one_ends, stdin_lines
from potluck.gates.exposing import GateLine, TakenError
from potluck.gates.file_limit import raise_file_limit
from potluck.gates.sockets import peer_user
from potluck.sharing.catalogue import MOST_CATALOGUE_BYTES, read_catalogue
from potluck.sharing.messages import (
    MOST_LINE_BYTES,
    Expect,
    FolderSettings,
    Found,
    FromWorker,
    Look,
    SharingSettings,
    SharingState,
    Want,
    WantAll,
)
from potluck.sharing.place import DataPlace
from potluck.sharing.swarm import FolderTransfer, Swarm

_LOOK_S = 0.25
_SOON_S = 0.004
_CONNECT_S = 1.0
_LISTEN_S = 10.0
_FIRST_STEP_S = 20.0
_NOBODY_ASKS_S = 60.0
_MANY_PIECES = 64  # whoever waits for more waits for most of a folder
_NICE = 10  # what trains goes first


def main() -> None:
    """Share until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=Path, required=True)
    options = parser.parse_args()
    raise_file_limit()
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the owner
    with suppress(asyncio.CancelledError, BrokenPipeError):
        asyncio.run(_Sharing(options.socket).run())


class _Sharing:
    """The process's parts, in one event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._settings: SharingSettings | None = None
        self._swarm: Swarm | None = None
        self._line: GateLine | None = None
        self._port = 0
        self._is_ready = asyncio.Event()
        self._trouble = ""
        self._states = StateWriter()
        self._num_waiting = 0
        self._hurry = asyncio.Event()
        self._has_peers = asyncio.Event()
        self._num_expected = 0
        self._began_at = time.monotonic()
        self._first_asked_at = 0.0

    async def run(self) -> None:
        """Serve until stdin ends."""
        try:
            await run_until_one_ends(self._read_settings(), self._serve(), self._look(), self._connect())
        finally:
            if self._line is not None:
                self._line.close()

    async def _read_settings(self) -> None:
        reader = await stdin_lines(1 << 24)
        while line := await reader.readline():
            is_first = self._settings is None
            self._settings = msgspec.json.decode(line, type=SharingSettings)
            self._has_peers.set()
            if is_first:
                try:
                    await self._begin(self._settings)
                except (SharingError, GateError, TakenError, OSError) as error:
                    self._trouble = str(error)
                    self._tell()

    async def _begin(self, settings: SharingSettings) -> None:
        """Open the folders, and let the run's machines dial this process."""
        swarm = Swarm(settings.address)
        for folder in settings.folders:
            await asyncio.to_thread(_add, swarm, folder)
        for _ in range(int(_LISTEN_S / 0.05)):
            if port := swarm.port:
                break
            await asyncio.sleep(0.05)
        else:
            raise SharingError(f"no port of {settings.address} can be used", fix="start the run again")
        self._line = GateLine(settings.gate, settings.gate_run)
        await asyncio.to_thread(self._line.expose, {port: "bulk"}, waits=False)
        self._swarm, self._port = swarm, port
        self._is_ready.set()
        self._tell()

    async def _connect(self) -> None:
        """Dial the peers, again and again: a machine that was away is dialled when it is back."""
        while True:
            await self._is_ready.wait()
            assert self._swarm is not None
            assert self._settings is not None
            self._has_peers.clear()
            self._swarm.connect(self._settings.peers)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._has_peers.wait(), _CONNECT_S)

    async def _look(self) -> None:
        """Note what has arrived, often while workers wait; tell the agent."""
        await self._is_ready.wait()
        assert self._swarm is not None
        looked_at = 0.0
        while True:
            is_due = time.monotonic() > looked_at + _LOOK_S
            self._swarm.advance(is_due=is_due)
            if is_due:
                looked_at = time.monotonic()
                for folder in self._swarm.folders.values() if self._is_background_due() else ():
                    folder.fetch_all()
                self._tell()
            if not any(folder.is_behind for folder in self._swarm.folders.values()):
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), _LOOK_S)
            await asyncio.sleep(_SOON_S)

    def _tell(self) -> None:
        transfers = [] if self._swarm is None else self._swarm.folders.values()
        state = SharingState(
            port=self._port,
            have_bytes=sum(one.have_bytes for one in transfers),
            total_bytes=sum(one.catalogue.size_bytes for one in transfers),
            is_ready=self._is_ready.is_set(),
            trouble=self._trouble or ("" if self._swarm is None else self._swarm.trouble),
        )
        self._states.write(state)

    # Workers

    async def _serve(self) -> None:
        self._path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._converse, self._path, limit=MOST_LINE_BYTES)
        self._path.chmod(0o600)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if peer_user(writer.get_extra_info("socket")) != os.getuid():
                return
            while line := await reader.readline():
                asked = msgspec.json.decode(line, type=FromWorker)
                while not self._is_ready.is_set() and not self._trouble:
                    await asyncio.sleep(_SOON_S)
                if self._swarm is None:
                    writer.write(msgspec.json.encode(Found(size=-1, trouble=self._trouble)) + b"\n")
                    return
                self._first_asked_at = self._first_asked_at or time.monotonic()
                if isinstance(asked, Expect):
                    self._num_expected += 1
                    for folder in self._swarm.folders.values():
                        folder.expect(asked.samples, asked.num_now, asked.num_samples)
                    continue
                writer.write(msgspec.json.encode(await self._answer(asked, self._swarm)) + b"\n")
                await writer.drain()
        except (OSError, ValueError, msgspec.MsgspecError, asyncio.CancelledError):
            pass  # the worker has ended, or this process does
        finally:
            with suppress(OSError):
                writer.close()

    async def _wait(self, folder: FolderTransfer, pieces: range) -> None:
        """Wait until these pieces are here; they come before all others."""
        self._num_waiting += 1
        self._hurry.set()
        if len(pieces) > _MANY_PIECES:
            folder.fetch_all()
        try:
            while not folder.have(pieces):
                folder.hurry(pieces)
                await asyncio.sleep(_SOON_S)
        finally:
            self._num_waiting -= 1
            if not self._num_waiting:
                self._hurry.clear()

    def _is_background_due(self) -> bool:
        """Whether to fetch what nobody has asked for: not before a second step, which the first would wait for."""
        waited_s = time.monotonic() - self._first_asked_at if self._first_asked_at else 0.0
        return self._num_expected > 1 or waited_s > _FIRST_STEP_S or time.monotonic() > self._began_at + _NOBODY_ASKS_S

    async def _answer(self, asked: Look | Want | WantAll, swarm: Swarm) -> Found:
        folder = swarm.folders.get(asked.folder)
        if isinstance(asked, WantAll) and folder is not None:
            folder.fetch_all()
            while not folder.is_whole:
                await asyncio.sleep(_LOOK_S)
            return Found(size=folder.catalogue.size_bytes)
        if isinstance(asked, WantAll):
            return Found(size=-1, trouble=f"this run has no folder {asked.folder}")
        file = None if folder is None else folder.files.get(asked.path)
        if folder is None or file is None:
            return Found(size=-1)
        if isinstance(asked, Look):
            return Found(size=file.size)
        start, end = max(0, asked.start), min(file.size, file.size if asked.end is None else asked.end)
        if start >= end:
            return Found(size=file.size, start=start, end=start)
        await self._wait(folder, folder.catalogue.pieces(file, start, end))
        folder.lengthen(file)
        start, end = folder.around(file, start, end)
        if (start, end) == (0, file.size):
            folder.show(file)
        return Found(size=file.size, start=start, end=end)


def _add(swarm: Swarm, folder: FolderSettings) -> None:
    content = Path(folder.catalogue).read_bytes()
    if len(content) > MOST_CATALOGUE_BYTES:
        raise SharingError(f"{folder.name} has too many files", fix="pack them into larger files")
    catalogue = read_catalogue(content)
    if catalogue.name != folder.name:
        raise SharingError(f"{folder.name} is called {catalogue.name} in its list of files", fix="start the run again")
    if folder.source:
        swarm.seed(catalogue, Path(folder.source))
        return
    place = DataPlace(Path(folder.place), catalogue.name)
    swarm.fetch(catalogue, place, is_whole=place.open(catalogue))


if __name__ == "__main__":
    main()
