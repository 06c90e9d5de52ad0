"""A TLS 1.3 connection over a non-blocking socket, and the contexts that say who may have one.

OpenSSL works in memory (ssl.MemoryBIO), and the bytes are read and written here in large pieces: that takes less
processor time than asyncio's streams, and leaves it to the bridge when to stop reading.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import TypeVar

import msgspec

from potluck.gates.identity import Identity

PIECE_BYTES = 1 << 18
_FIRST_BYTES = 1 << 15  # of a message: the wire need not wait until all of a large piece is encrypted
_RECORD_BYTES = 1 << 15  # more than a TLS record, which may stay behind from the piece before
_LARGEST_MESSAGE = 1 << 20
_LENGTH_BYTES = 4
Wanted = TypeVar("Wanted")

# Read into and used up at once, by the one thread that a gate has.
_raw = memoryview(bytearray(PIECE_BYTES))
_plain = memoryview(bytearray(PIECE_BYTES + _RECORD_BYTES))
NOTHING = memoryview(b"")


class EndOfStreamError(Exception):
    """The other side has gone; orderly if it said so."""

    def __init__(self, *, is_orderly: bool) -> None:
        super().__init__("the other side has gone")
        self.is_orderly = is_orderly


def members_only(identity: Identity, certificates: Iterable[str]) -> ssl.SSLContext:
    """For a gate that is dialled: exactly these certificates get in."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, identity)
    context.verify_mode = ssl.CERT_REQUIRED
    # A resumed session would not show its certificate again: somebody who has left could come back.
    context.num_tickets = 0
    for certificate in certificates:
        with suppress(ssl.SSLError, ValueError):  # that machine stays outside, the others do not
            context.load_verify_locations(cadata=certificate)
    return context


def anybody(identity: Identity) -> ssl.SSLContext:
    """For the host's service, which has credentials of its own."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, identity)
    context.set_alpn_protocols(["http/1.1"])
    return context


@lru_cache(maxsize=256)
def towards(identity: Identity, certificate: str) -> ssl.SSLContext:
    """For dialling one machine, known by its certificate."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, identity)
    context.check_hostname = False  # the certificate itself is compared, whatever name stands in it
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificate)
    return context


def _context(side: "ssl._SSLMethod", identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(identity.certificate_file, identity.key_file)
    return context


class Sender:
    """A connection that keeps what the kernel does not take at once."""

    def __init__(self, raw: socket.socket) -> None:
        self.socket = raw
        self._rest = NOTHING

    @property
    def is_full(self) -> bool:
        """Whether the kernel has not yet taken everything that was given."""
        return bool(self._rest)

    def flush(self) -> None:
        """Send what was kept, as far as the kernel takes it."""
        while self._rest:
            try:
                sent = self.socket.send(self._rest)
            except BlockingIOError:
                return
            self._rest = self._rest[sent:]


class SecureEnd(Sender):
    """A TLS connection: messages while it is set up, then one end of a bridge."""

    def __init__(self, raw: socket.socket, context: ssl.SSLContext, *, is_server: bool, begun: bytes = b"") -> None:
        super().__init__(raw)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._incoming.write(begun)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._has_said_goodbye = False
        self._has_more = True
        """Whether OpenSSL may have something that was received and not yet taken."""

    @property
    def certificate(self) -> bytes:
        """The other side's, in DER form."""
        return self._tls.getpeercert(binary_form=True) or b""

    # Setting up

    async def shake_hands(self) -> None:
        """OSError, ssl.SSLError or EndOfStreamError if the other side is not who it should be."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._send_out(loop)
                await self._read_in(loop)
                continue
            except ssl.SSLError:
                await self._send_out(loop)  # the alert that says why
                raise
            await self._send_out(loop)
            return

    async def send(self, message: msgspec.Struct) -> None:
        """One message, after its length."""
        content = msgspec.json.encode(message)
        self._tls.write(len(content).to_bytes(_LENGTH_BYTES, "big") + content)
        await self._send_out(asyncio.get_running_loop())

    async def receive(self, kind: type[Wanted] | object) -> Wanted:
        """The next message; msgspec.MsgspecError if it is of no kind that was expected."""
        size = int.from_bytes(await self._read_exactly(_LENGTH_BYTES), "big")
        if size > _LARGEST_MESSAGE:
            raise EndOfStreamError(is_orderly=False)
        message: Wanted = msgspec.json.decode(await self._read_exactly(size), type=kind)
        return message

    async def send_plain(self, content: bytes) -> None:
        self._tls.write(content)
        await self._send_out(asyncio.get_running_loop())

    async def _read_exactly(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            try:
                piece = self._tls.read(size - len(content))
            except ssl.SSLWantReadError:
                await self._read_in(asyncio.get_running_loop())
                continue
            if not piece:
                raise EndOfStreamError(is_orderly=True)
            content += piece
        return bytes(content)

    async def _read_in(self, loop: asyncio.AbstractEventLoop) -> None:
        received = await loop.sock_recv(self.socket, PIECE_BYTES)
        if not received:
            raise EndOfStreamError(is_orderly=False)
        self._incoming.write(received)

    async def _send_out(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._outgoing.pending:
            await loop.sock_sendall(self.socket, self._outgoing.read())

    # One end of a bridge

    def take(self) -> memoryview:
        """What has arrived, decrypted; valid until the next call. Nothing if there is nothing yet."""
        if self._has_more and (taken := self._decrypt()):
            return taken
        try:
            received = self.socket.recv_into(_raw)
        except BlockingIOError:
            return NOTHING
        if not received:
            raise EndOfStreamError(is_orderly=False)
        self._incoming.write(_raw[:received])
        return self._decrypt()

    def give(self, content: memoryview) -> None:
        """Encrypt and send; what the kernel does not take waits for `flush`."""
        self._tls.write(content)
        self._rest = memoryview(self._outgoing.read())
        self.flush()

    def say_goodbye(self) -> None:
        """Without it, the other side takes the end for a break."""
        if not self._has_said_goodbye:
            self._has_said_goodbye = True
            # It wants the other side's goodbye, which nobody waits for.
            with suppress(ssl.SSLError, ValueError):
                self._tls.unwrap()
            self._rest = memoryview(bytes(self._rest) + self._outgoing.read())

    def close(self, *, is_orderly: bool = True) -> None:
        """Hang up; an orderly end is told to the other side."""
        if is_orderly:
            self.say_goodbye()
            with suppress(OSError):
                self.flush()
        hang_up(self.socket, is_orderly=is_orderly)

    def _decrypt(self) -> memoryview:
        filled, self._has_more = 0, True
        try:
            # To the end: the kernel does not tell of what has been read from it, and stays behind here.
            while filled < len(_plain):
                size = int(self._tls.read(len(_plain) - filled, _plain[filled:]))
                if not size:
                    if filled:
                        break
                    raise EndOfStreamError(is_orderly=True)
                filled += size
        except ssl.SSLWantReadError:
            self._has_more = False
        except ssl.SSLError as error:
            raise EndOfStreamError(is_orderly=False) from error
        return _plain[:filled]


class PlainEnd(Sender):
    """A connection on this machine: the other end of a bridge."""

    def __init__(self, raw: socket.socket) -> None:
        super().__init__(raw)
        self._next_bytes = _FIRST_BYTES

    def take(self) -> memoryview:
        """What has arrived; valid until the next call. Nothing if there is nothing yet."""
        try:
            received = self.socket.recv_into(_raw, self._next_bytes)
        except BlockingIOError:
            return NOTHING
        if not received:
            raise EndOfStreamError(is_orderly=True)
        self._next_bytes = PIECE_BYTES if received == self._next_bytes else _FIRST_BYTES
        return _raw[:received]

    def give(self, content: memoryview) -> None:
        try:
            sent = self.socket.send(content)
        except BlockingIOError:
            sent = 0
        if sent < len(content):
            self._rest = memoryview(bytes(content[sent:]))

    def say_goodbye(self) -> None:
        """The kernel does it."""

    def close(self, *, is_orderly: bool = True) -> None:
        hang_up(self.socket, is_orderly=is_orderly)


def hang_up(connection: socket.socket, *, is_orderly: bool) -> None:
    """Close; a connection that broke off is reset, so that whoever reads it knows."""
    if not is_orderly:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
