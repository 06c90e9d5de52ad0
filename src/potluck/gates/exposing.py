"""A worker's line to its machine's gate: while it is open, other machines of the run can dial the worker's ports."""

import select
import socket
import threading
import time
from contextlib import suppress
from typing import TypeVar

import msgspec

from potluck.core.errors import GateError
from potluck.gates.messages import AskRates, Expose, Exposed, Kind, Rates

_ANSWER_S = 15.0
_FIND_S = 20.0
_AGAIN_S = 0.2
_LOOK_MS = 500
_LONGEST = 1 << 16
Wanted = TypeVar("Wanted", Exposed, Rates)


class TakenError(Exception):
    """Another program has one of the ports on another machine: the worker has to open other ports."""


class GateLine:
    """A worker's conversation with its gate; it exposes the ports again if the gate's process is restarted."""

    def __init__(self, path: str, run: str) -> None:
        self._path = path
        self._run = run
        self._ports: dict[int, Kind] = {}
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._is_closed = threading.Event()
        self._watch: threading.Thread | None = None

    def expose(self, ports: dict[int, Kind], *, waits: bool = True) -> Exposed:
        """Let the run's machines dial these ports; `waits` until those in reach can. TakenError if a port is taken."""
        with self._lock:
            self._ports |= ports
            if self._watch is None:
                self._watch = threading.Thread(target=self._keep, name="potluck-gate-line", daemon=True)
                self._watch.start()
            exposed = self._ask(Expose(run=self._run, ports=ports, waits=waits), Exposed)
        if exposed.taken:
            port, machine = next(iter(exposed.taken.items()))
            raise TakenError(f"port {port} is taken on {machine}")
        return exposed

    def rates(self) -> Rates | None:
        """How fast this machine has sent to the others since the last call; None if the gate does not answer."""
        with self._lock:
            try:
                return self._ask(AskRates(), Rates, find_s=0.0)
            except (OSError, GateError, msgspec.MsgspecError):
                return None

    def close(self) -> None:
        """End the conversation, which also withdraws the ports."""
        self._is_closed.set()
        with self._lock:
            self._hang_up()

    def _ask(self, message: msgspec.Struct, kind: type[Wanted], find_s: float = _FIND_S) -> Wanted:
        connection = self._connect(find_s)
        received = b""
        try:
            connection.sendall(msgspec.json.encode(message) + b"\n")
            while not received.endswith(b"\n"):
                piece = connection.recv(_LONGEST)
                if not piece:
                    raise ConnectionResetError("the gate has gone")
                received += piece
        except OSError:
            self._hang_up()  # a late answer would be taken for the answer to the next question
            raise
        return msgspec.json.decode(received, type=kind)

    def _connect(self, find_s: float) -> socket.socket:
        if self._connection is None:
            deadline = time.monotonic() + find_s
            while True:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection.settimeout(_ANSWER_S)
                try:
                    connection.connect(self._path)
                    break
                except OSError as error:
                    connection.close()
                    if time.monotonic() > deadline or self._is_closed.is_set():
                        raise GateError(
                            f"this machine's gate does not answer: {error.strerror or error}",
                            fix="see what potluck join or potluck host prints on this machine",
                        ) from None
                    time.sleep(_AGAIN_S)
            self._connection = connection
        return self._connection

    def _keep(self) -> None:
        """Expose the ports again when the gate is restarted. It has lost all connections: workers form a new group."""
        while not self._is_closed.is_set():
            connection = self._connection
            hang_up = select.poll()
            if connection is not None:
                with suppress(ValueError):  # the connection is being closed
                    hang_up.register(connection, select.POLLRDHUP)
            has_ended = bool(hang_up.poll(_LOOK_MS)) or connection is None
            if not has_ended or self._is_closed.is_set():
                continue
            with self._lock, suppress(OSError, GateError, msgspec.MsgspecError):
                if self._connection is connection:
                    self._hang_up()
                    self._ask(Expose(run=self._run, ports=self._ports, waits=False), Exposed)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
