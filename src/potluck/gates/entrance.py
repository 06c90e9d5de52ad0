"""The port that strangers can dial: few unfinished handshakes, little time for each, no answer to other programs."""

import asyncio
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from potluck.gates.file_limit import is_out_of_files, out_of_files
from potluck.gates.links import BROKEN
from potluck.gates.secure import EndOfStreamError, SecureEnd
from potluck.gates.sockets import prepare

GREETING = b"potluck gate 1\n"
HANDSHAKE_S = 5.0
_TLS_HANDSHAKE = 0x16
_MOST_UNFINISHED = 128
_PLAIN_HTTP = b"GH"  # the first letters of GET and HEAD
Guest = TypeVar("Guest")
GoOn = Callable[[], Awaitable[None]]
"""What follows for a connection that has shown what it may have."""


class Entrance:
    """Listens; passes members (by certificate) to `let_in`, and HTTPS clients to `serve`, if there is a service.

    `hand_out` reads a plain HTTP request within the time of a handshake, and returns what answers the request.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        *,
        members: Callable[[], ssl.SSLContext],
        service: Callable[[], ssl.SSLContext | None],
        let_in: Callable[[SecureEnd], Awaitable[None]],
        serve: Callable[[SecureEnd], Awaitable[None]],
        hand_out: Callable[[socket.socket, bytes], Awaitable[GoOn]],
    ) -> None:
        self._listeners = listeners
        self._members = members
        self._service = service
        self._let_in = let_in
        self._serve = serve
        self._hand_out = hand_out
        self._unfinished: dict[asyncio.Task[None], str] = {}
        self._admitted: set[asyncio.Task[None]] = set()
        self._has_warned = False

    @property
    def port(self) -> int:
        return int(self._listeners[0].getsockname()[1])

    async def listen(self) -> None:
        """Accept connections until cancelled."""
        try:
            await asyncio.gather(*(self._accept(listener) for listener in self._listeners))
        finally:
            for task in [*self._unfinished, *self._admitted]:
                task.cancel()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                connection, (address, _) = await loop.sock_accept(listener)
            except OSError as error:  # no file descriptors left, or the dialler has gone before accept
                self._note(error)
                await asyncio.sleep(0.05)
                continue
            await asyncio.sleep(0)  # a flood of connections must not keep other tasks waiting
            if len(self._unfinished) >= _MOST_UNFINISHED:
                self._drop_one()
            task = asyncio.ensure_future(self._meet(prepare(connection)))
            self._unfinished[task] = address
            task.add_done_callback(self._forget)

    def _note(self, error: OSError) -> None:
        """Print once in a gate's life that file descriptors have run out: an attacker could cause it all the time."""
        if is_out_of_files(error) and not self._has_warned:
            self._has_warned = True
            sys.stderr.write(f"potluck gate: {out_of_files()}\n")

    def _drop_one(self) -> None:
        """Cancel an old unfinished handshake: a member's takes milliseconds, a stranger's may not."""
        oldest = oldest_of_busiest(self._unfinished)
        del self._unfinished[oldest]
        oldest.cancel()

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._unfinished.pop(task, None)
        self._admitted.discard(task)

    async def _meet(self, connection: socket.socket) -> None:
        try:
            go_on = await asyncio.wait_for(self._prove(connection), HANDSHAKE_S)
        except (*BROKEN, asyncio.CancelledError):
            connection.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._unfinished.pop(task, None)
        self._admitted.add(task)
        with suppress(*BROKEN):
            await go_on()

    async def _prove(self, connection: socket.socket) -> GoOn:
        loop = asyncio.get_running_loop()
        first = await loop.sock_recv(connection, 1)
        service = self._service()
        if first and first[0] == _TLS_HANDSHAKE and service is not None:
            end = SecureEnd(connection, service, is_server=True, begun=first)
            await end.shake_hands()
            return partial(self._serve, end)
        if first and first in _PLAIN_HTTP:
            return await self._hand_out(connection, first)
        greeting = first
        while greeting and GREETING.startswith(greeting) and len(greeting) < len(GREETING):
            greeting += await loop.sock_recv(connection, len(GREETING) - len(greeting)) or b"\0"
        if greeting != GREETING:
            raise EndOfStreamError(is_orderly=False)
        end = SecureEnd(connection, self._members(), is_server=True)
        await end.shake_hands()
        return partial(self._let_in, end)


def oldest_of_busiest(addresses: Mapping[Guest, str]) -> Guest:
    """The connection to drop when there are too many: the oldest from the address that has most."""
    (busiest, _), *_ = Counter(addresses.values()).most_common(1)
    return next(guest for guest, address in addresses.items() if address == busiest)
