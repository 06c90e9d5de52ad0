"""A host that waits: the process on a successor that has imported everything, and serves when this machine has won."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from potluck.meeting.home import Home
from potluck.meeting.wire import GOODBYE

_END_S = 12.0
_MOST_LOG_BYTES = 1 << 20


class StandbyHost:
    """Starts `potluck.meeting.host.deputy`; it ends with this process, at the latest."""

    def __init__(self, home: Home, gate: str) -> None:
        folder = str(home.folder.absolute())
        self._command = [sys.executable, "-m", "potluck.meeting.host.deputy", folder, "--gate", gate]
        # Beside the gate's: a socket's path must be short, and not every home folder takes sockets.
        self._socket = Path(gate).parent / "deputy"
        self.log = home.succession_dir / "host.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.is_serving = False

    @property
    def service(self) -> str:
        """The socket of its HTTP service, for the gate; empty until it is to serve."""
        return str(self._socket) if self.is_serving else ""

    @property
    def has_ended(self) -> bool:
        """Whether there is no process, after one was asked for."""
        return self._process is None or self._process.poll() is not None

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.log.exists() and self.log.stat().st_size > _MOST_LOG_BYTES:
            self.log.replace(self.log.with_name(f"{self.log.name}.1"))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def serve(self, term: int, runs: dict[str, str]) -> None:
        """Let it serve as the host of this term. `runs`: folders of runs that this machine has a part in."""
        self.is_serving = True  # first: what cannot be started now is tried again
        if self.has_ended:
            self.start()
        self._send({"term": term, "service": self.service, "runs": runs, "is_restored": False})

    def start_again(self) -> None:
        """Start it again after it has ended by itself: it goes on with its own state."""
        self.is_serving = True
        self.start()
        self._send({"term": 0, "service": self.service, "runs": {}, "is_restored": True})

    def _send(self, order: dict[str, object]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def close(self, *, in_order: bool = False) -> None:
        """End the process; `in_order`: it pauses its runs first."""
        self.is_serving = False
        if self._process is None:
            return
        assert self._process.stdin is not None
        with suppress(OSError):
            if in_order:
                self._process.stdin.write(GOODBYE)
            self._process.stdin.close()
        try:
            self._process.wait(_END_S if in_order else 2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
