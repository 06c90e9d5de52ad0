"""A gate's process, from its owner's side: the owner starts it, sends it settings, and restarts it if it ends."""

import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from potluck.gates.messages import Links, Settings

_AGAIN_S = 0.5
_END_S = 5.0


class GateProcess:
    """A gate's process, which serves listening sockets of this process; `links` is the state that it wrote last."""

    def __init__(self, identity: Path, listeners: Sequence[socket.socket], tell: Callable[[str], None]) -> None:
        self._identity = identity
        self._listeners = listeners
        self._tell = tell
        self.folder = Path(tempfile.mkdtemp(prefix="potluck-"))
        """Only this user has access to it."""
        self.socket = self.folder / "gate"
        self._settings: Settings | None = None
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = threading.Event()
        self.links = Links(links=())
        self._thread = threading.Thread(target=self._keep, name="potluck-gate", daemon=True)

    @property
    def port(self) -> int:
        """This machine's one port."""
        return int(self._listeners[0].getsockname()[1])

    def start(self) -> None:
        self._start()
        self._thread.start()

    def update(self, settings: Settings) -> None:
        """Send the gate new settings: its members and runs."""
        with self._lock:
            self._settings = settings
            self._send()

    def close(self) -> None:
        """End the gate, and all connections with it."""
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
        numbers = [listener.fileno() for listener in self._listeners]
        self._process = subprocess.Popen(  # noqa: S603
            [
                *(sys.executable, "-m", "potluck.gates.main"),
                *("--identity", str(self._identity)),
                *("--socket", str(self.socket)),
                *("--listen", ",".join(map(str, numbers))),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=numbers,
            start_new_session=True,
        )

    def _send(self) -> None:
        if self._settings is not None and self._process is not None:
            assert self._process.stdin is not None
            with suppress(OSError):  # the gate has just ended: the next one gets the settings
                self._process.stdin.write(msgspec.json.encode(self._settings) + b"\n")
                self._process.stdin.flush()

    def _keep(self) -> None:
        """Read the links that the gate writes; if the gate ends, start another one."""
        while True:
            process = self._process
            assert process is not None
            assert process.stdout is not None
            with process.stdout as lines:
                for line in lines:
                    with suppress(msgspec.MsgspecError):  # a last line that was cut off
                        self.links = msgspec.json.decode(line, type=Links)
            process.wait()
            if self._is_over.is_set():
                return
            self._tell(f"the process that is this machine's gate has ended ({process.returncode}); a new one starts")
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
