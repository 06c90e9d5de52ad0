"""The host's HTTP service behind its gate: a Unix socket, and a first line with the client's address."""

import asyncio
import socket
from pathlib import Path

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 5.0
_LONGEST_LINE = 108  # of the PROXY protocol, version 1


class BehindGate(H11Protocol):
    """HTTP after a PROXY protocol line, in which the gate names the client's address: PROXY TCP4 10.0.0.7 ...

    A request's headers have to be complete within HEADERS_S of their first byte.
    """

    _line: bytes | None = b""
    _too_late: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        if self._line is not None:
            data = self._read_line(self._line + data)
        if data:
            try:
                super().data_received(data)
            except h11.LocalProtocolError:  # invalid bytes at a point where no answer can be sent any more
                self.transport.abort()
        self._watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_headers()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_headers()

    def _read_line(self, received: bytes) -> bytes:
        """The bytes after the gate's line; empty until the line is complete."""
        line, found, rest = received.partition(b"\r\n")
        if not found and len(line) <= _LONGEST_LINE:
            self._line = line
            return b""
        words = line.decode("ascii", errors="replace").split()
        if words[:2] != ["PROXY", "TCP4"] or len(words) != 6 or not words[4].isdigit():
            self.transport.close()
            return b""
        self._line = None
        self.client = (words[2], int(words[4]))
        return rest

    def _watch_headers(self) -> None:
        """Start or stop the timer that closes a connection with incomplete headers, in its first or a later request."""
        is_begun = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if not is_begun:
            self._forget_headers()
        elif self._too_late is None:
            self._too_late = self.loop.call_later(HEADERS_S, self.transport.abort)

    def _forget_headers(self) -> None:
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None


def bind_service(path: Path) -> socket.socket:
    """A Unix socket that only this user may open."""
    service = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    service.bind(str(path))
    path.chmod(0o600)
    service.listen(512)
    return service
