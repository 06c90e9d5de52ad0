"""A process of our own that is kept alive: settings go to it, and its state comes back, as JSON lines over pipes.

The process ends when its stdin ends, so it never outlives its owner.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

_AGAIN_S = 0.5
_END_S = 5.0
State = TypeVar("State", bound=msgspec.Struct)


class KeptProcess(Generic[State]):
    """The owner's side: starts `python -m MODULE`, restarts it if it ends; `state` is what it wrote last."""

    def __init__(
        self, module: str, socket_name: str, state: State, when_ended: Callable[[int], None] = lambda _: None
    ) -> None:
        self._module = module
        self.state = state
        self._when_ended = when_ended
        self.folder = Path(tempfile.mkdtemp(prefix="potluck-"))
        """Only this user has access to it."""
        self.socket = self.folder / socket_name
        self._settings: msgspec.Struct | None = None
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"potluck-{socket_name}", daemon=True)

    def arguments(self) -> Sequence[str]:
        """The arguments of the process besides its socket."""
        return ()

    def inherited(self) -> Sequence[int]:
        """Descriptors that the process gets."""
        return ()

    def start(self) -> None:
        """Start the process and keep it; nothing if that is done."""
        if self._thread.ident is None:
            self._start()
            self._thread.start()

    def update(self, settings: msgspec.Struct) -> None:
        """Send the process new settings."""
        with self._lock:
            if settings != self._settings:
                self._settings = settings
                self._send()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._is_over.set()
            process = self._process
        if process is not None:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._thread.ident is not None:
            self._thread.join()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", self._module, "--socket", str(self.socket), *self.arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=self.inherited(),
            start_new_session=True,
        )

    def _send(self) -> None:
        if self._settings is not None and self._process is not None:
            assert self._process.stdin is not None
            with suppress(OSError):  # it has just ended: the next one gets the settings
                self._process.stdin.write(msgspec.json.encode(self._settings) + b"\n")
                self._process.stdin.flush()

    def _keep(self) -> None:
        """Read the states that the process writes; if it ends, start another one."""
        while True:
            process = self._process
            assert process is not None
            assert process.stdout is not None
            with process.stdout as lines:
                for line in lines:
                    with suppress(msgspec.MsgspecError):  # a last line that was cut off
                        self.state = msgspec.json.decode(line, type=type(self.state))
            process.wait()
            if self._is_over.is_set():
                return
            self._when_ended(process.returncode)
            with suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
            if self._is_over.wait(_AGAIN_S):
                return
            with self._lock:
                if self._is_over.is_set():
                    return
                self._start()
                self._send()


# In the process itself


async def run_until_one_ends(*parts: Coroutine[Any, Any, None]) -> None:
    """Run the parts of a process together until the first ends, then cancel the others; raises what it raised."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def stdin_lines(most_bytes: int) -> asyncio.StreamReader:
    """The settings that the owner sends, line by line."""
    reader = asyncio.StreamReader(limit=most_bytes)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb"))
    return reader


class StateWriter:
    """Writes changed states to stdout for the owner; an owner that is stopped (Ctrl-Z) does not stop this process."""

    def __init__(self) -> None:
        self._written: msgspec.Struct | None = None
        self._left = b""
        os.set_blocking(sys.stdout.fileno(), False)

    def write(self, state: msgspec.Struct) -> None:
        """Write the state unless it is the one that was written last, or that one is still on its way."""
        if state != self._written and not self._left:
            self._left, self._written = msgspec.json.encode(state) + b"\n", state
        if self._left:
            with suppress(BlockingIOError):
                self._left = self._left[os.write(sys.stdout.fileno(), self._left) :]
