"""The host's service behind its gate: a Unix socket, and a first line that says who asks."""

import socket
from pathlib import Path

from uvicorn.protocols.http.h11_impl import H11Protocol

_LONGEST_LINE = 108  # of the PROXY protocol's first version


class BehindGate(H11Protocol):
    """HTTP after the line in which the gate tells the address of whoever asks: PROXY TCP4 10.0.0.7 ..."""

    _line: bytes | None = b""

    def data_received(self, data: bytes) -> None:
        if self._line is None:
            super().data_received(data)
            return
        line, found, rest = (self._line + data).partition(b"\r\n")
        if not found and len(line) <= _LONGEST_LINE:
            self._line = line
            return
        words = line.decode("ascii", errors="replace").split()
        if words[:2] != ["PROXY", "TCP4"] or len(words) != 6:
            self.transport.close()
            return
        self._line = None
        self.client = (words[2], int(words[4]))
        if rest:
            super().data_received(rest)


def bind_service(path: Path) -> socket.socket:
    """A Unix socket that only this user may open."""
    service = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    service.bind(str(path))
    path.chmod(0o600)
    service.listen(512)
    return service
