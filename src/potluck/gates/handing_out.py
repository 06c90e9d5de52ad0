"""One file over plain HTTP, for machines that have no Potluck yet: whoever does not know its key gets no answer.

The file needs no secrecy, and the receiver compares its hash. The key keeps strangers from learning what listens here
and from having the file sent to them again and again.
"""

import asyncio
import hmac
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from potluck.gates.entrance import GoOn, oldest_of_busiest
from potluck.gates.messages import HandedOut
from potluck.gates.secure import EndOfStreamError, hang_up

MOST_HEAD_BYTES = 4096
MOST_RECEIVERS = 16
SEND_S = 60.0
_GOODBYE_S = 1.0
_END_OF_HEAD = b"\r\n\r\n"
_METHODS = ("GET", "HEAD")


class HandingOut:
    """Reads requests for the file that `handed_out` names, and sends it to at most MOST_RECEIVERS at a time."""

    def __init__(self, handed_out: Callable[[], HandedOut | None]) -> None:
        self._handed_out = handed_out
        self._receivers: dict[asyncio.Task[Any], str] = {}

    async def read(self, connection: socket.socket, begun: bytes) -> GoOn:
        """Read a request's head and return what answers it; EndOfStreamError for whoever does not show the key."""
        offered = self._handed_out()
        if offered is None:
            raise EndOfStreamError(is_orderly=False)
        loop, head = asyncio.get_running_loop(), begun
        while _END_OF_HEAD not in head:
            piece = (
                await loop.sock_recv(connection, MOST_HEAD_BYTES - len(head)) if len(head) < MOST_HEAD_BYTES else b""
            )
            if not piece:
                raise EndOfStreamError(is_orderly=False)
            head += piece
        method, name = _read_request(head.partition(b"\r\n")[0], offered.key)
        return partial(self._answer, connection, offered, method, name)

    async def _answer(self, connection: socket.socket, offered: HandedOut, method: str, name: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._receivers) >= MOST_RECEIVERS:
            oldest = oldest_of_busiest(self._receivers)
            del self._receivers[oldest]
            oldest.cancel()
        try:
            self._receivers[task] = connection.getpeername()[0]
            await asyncio.wait_for(_send(connection, offered, method, name), SEND_S)
        finally:
            self._receivers.pop(task, None)
            hang_up(connection, is_orderly=True)


async def _send(connection: socket.socket, offered: HandedOut, method: str, name: str) -> None:
    loop = asyncio.get_running_loop()
    # Whoever knows the key holds a line of this host: they may hear that the host has another version now.
    content = await asyncio.to_thread(Path(offered.file).read_bytes) if name == offered.name else None
    status = "404 Not Found" if content is None else "200 OK"
    headers = f"Content-Type: application/octet-stream\r\nContent-Length: {len(content or b'')}\r\nConnection: close"
    await loop.sock_sendall(connection, f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n".encode())
    if content is not None and method == "GET":
        await loop.sock_sendall(connection, content)
    connection.shutdown(socket.SHUT_WR)
    # Closing with unread bytes would reset the connection, and the receiver could lose the end of the file.
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(loop.sock_recv(connection, MOST_HEAD_BYTES), _GOODBYE_S)


def _read_request(line: bytes, key: str) -> tuple[str, str]:
    """The method and the name that a request line asks for; EndOfStreamError unless it is /KEY/NAME, byte by byte."""
    method, _, rest = line.decode("latin-1").partition(" ")
    path, _, protocol = rest.rpartition(" ")
    root, shown, name = [*path.split("/", 2), "", ""][:3]
    is_known = hmac.compare_digest(shown.encode(), key.encode())
    if method not in _METHODS or protocol not in ("HTTP/1.1", "HTTP/1.0") or root or not key or not is_known:
        raise EndOfStreamError(is_orderly=False)
    return method, name
