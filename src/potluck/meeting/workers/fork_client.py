"""Runs in the agent: starts the fork server, sends it messages, and posts its answers to the agent's loop."""

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from potluck.meeting.workers.messages import (
    STEP_S,
    EndWithin,
    ForkServerReady,
    FromForkServer,
    ToForkServer,
    WorkerNews,
)

_END_S = 15.0


@dataclass(frozen=True, slots=True)
class ForkServerEnded:
    """The fork server is gone, and all its workers with it."""


class ForkClient:
    """A fork server in a session of its own: Ctrl-C reaches only the agent, which then asks workers to stop."""

    def __init__(self, post: Callable[[WorkerNews | ForkServerEnded], None]) -> None:
        """`post` takes the fork server's messages. The reader thread calls `post`, so it may only queue them."""
        self._post = post
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = threading.Thread(target=self._read, name="potluck-fork-server", daemon=True)
        self._is_ready = threading.Event()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "potluck.meeting.workers.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._reader.start()

    def send(self, message: ToForkServer) -> None:
        """Send a message to the fork server; nothing happens if it has ended, which `post` learns of."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")
            self._process.stdin.flush()

    def close(self, step_s: float = STEP_S) -> None:
        """End the fork server; its workers get `step_s` to stop after their step."""
        if self._process is None:
            return
        if not self._is_ready.is_set():
            self._process.kill()  # it still imports torch, and has no workers
        self.send(EndWithin(step_s=step_s))
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already
            self._process.stdin.close()
        try:
            self._process.wait(step_s + _END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with suppress(msgspec.MsgspecError):  # a last line that was cut off
                    message = msgspec.json.decode(line, type=FromForkServer)
                    self._is_ready.set() if isinstance(message, ForkServerReady) else self._post(message)
        self._post(ForkServerEnded())
