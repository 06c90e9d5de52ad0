"""A TLS 1.3 connection over a non-blocking socket, and the SSL contexts that decide who may connect.

OpenSSL works in memory (ssl.MemoryBIO); this module reads and writes the socket in large pieces. That takes less
processor time than asyncio's streams, and the bridge decides when to stop reading.
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
from potluck.gates.loopback import MOST_MACHINES
from potluck.gates.records import RecordEnds

PIECE_BYTES = 1 << 18
_FIRST_BYTES = 1 << 15  # first piece of a message: small, so that sending begins before the rest is encrypted
_RECORD_BYTES = 1 << 15  # more than a TLS record, of which one may be left over from the piece before
_LARGEST_MESSAGE = 1 << 20
_LENGTH_BYTES = 4
Wanted = TypeVar("Wanted")

# Buffers for all connections: filled and used up before the next read, by the one thread that a gate has.
_raw = memoryview(bytearray(PIECE_BYTES))
_plain = memoryview(bytearray(PIECE_BYTES + _RECORD_BYTES))
NOTHING = memoryview(b"")


class EndOfStreamError(Exception):
    """The other side has ended the connection; orderly if it signalled the end."""

    def __init__(self, *, is_orderly: bool) -> None:
        super().__init__("the other side has gone")
        self.is_orderly = is_orderly


def members_only(identity: Identity, certificates: Iterable[str]) -> ssl.SSLContext:
    """The context of a gate that is dialled: it accepts exactly these certificates."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, identity)
    context.verify_mode = ssl.CERT_REQUIRED
    # A resumed session does not show its certificate again: a machine that has left could come back.
    context.num_tickets = 0
    trust(context, certificates)
    return context


def trust(context: ssl.SSLContext, certificates: Iterable[str]) -> None:
    """Let the context accept these certificates, too."""
    for certificate in certificates:
        with suppress(ssl.SSLError, ValueError):  # keeps only the machine with the bad certificate out
            context.load_verify_locations(cadata=certificate)


def anybody(identity: Identity) -> ssl.SSLContext:
    """The context of the host's HTTPS service: it asks for no certificate, since the service checks credentials."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, identity)
    context.set_alpn_protocols(["http/1.1"])
    return context


@lru_cache(maxsize=MOST_MACHINES)  # one for each: the host dials all members in turn
def towards(identity: Identity, certificate: str) -> ssl.SSLContext:
    """The context for dialling one machine: it accepts that machine's certificate only."""
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
    """A connection that keeps the bytes that the kernel does not take at once."""

    def __init__(self, raw: socket.socket) -> None:
        self.socket = raw
        self._rest = NOTHING

    @property
    def is_full(self) -> bool:
        """Whether the kernel has not yet taken all bytes that were given."""
        return bool(self._rest)

    def flush(self) -> None:
        """Send the bytes that were kept, as far as the kernel takes them."""
        while self._rest:
            try:
                sent = self.socket.send(self._rest)
            except BlockingIOError:
                return
            self._rest = self._rest[sent:]


class SecureEnd(Sender):
    """A TLS connection: it carries messages while it is set up, and is then one End of a bridge."""

    def __init__(self, raw: socket.socket, context: ssl.SSLContext, *, is_server: bool, begun: bytes = b"") -> None:
        super().__init__(raw)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._records = RecordEnds()
        self._receive(begun)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._has_said_goodbye = False
        self._has_more = True
        """Whether OpenSSL may hold bytes that were received and not yet taken."""

    @property
    def certificate(self) -> bytes:
        """The other side's certificate in DER form; empty if it has shown none."""
        return self._tls.getpeercert(binary_form=True) or b""

    # Setting up

    async def shake_hands(self) -> None:
        """Do the TLS handshake; OSError, ssl.SSLError or EndOfStreamError if it fails."""
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
        """Send one message, after its length."""
        content = msgspec.json.encode(message)
        self._tls.write(len(content).to_bytes(_LENGTH_BYTES, "big") + content)
        await self._send_out(asyncio.get_running_loop())

    async def receive(self, kind: type[Wanted] | object) -> Wanted:
        """Receive the next message; msgspec.MsgspecError if it is not of the type `kind`."""
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
        self._receive(received)

    def _receive(self, content: memoryview | bytes) -> None:
        self._incoming.write(content)
        self._records.follow(content)

    async def _send_out(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._outgoing.pending:
            await loop.sock_sendall(self.socket, self._outgoing.read())

    # One end of a bridge

    def take(self) -> memoryview:
        """The bytes that have arrived, decrypted; valid until the next call, and empty if there are none yet."""
        if self._has_more and (taken := self._decrypt()):
            return taken
        try:
            received = self.socket.recv_into(_raw)
        except BlockingIOError:
            return NOTHING
        if not received:
            raise EndOfStreamError(is_orderly=False)
        self._receive(_raw[:received])
        self._records.await_rest(self.socket)
        return self._decrypt()

    def give(self, content: memoryview) -> None:
        """Encrypt and send bytes; those that the kernel does not take wait for `flush`."""
        self._tls.write(content)
        self._rest = memoryview(self._outgoing.read())
        self.flush()

    def say_goodbye(self) -> None:
        """Add TLS's close_notify to the bytes to send: without it, the other side sees a broken connection."""
        if not self._has_said_goodbye:
            self._has_said_goodbye = True
            # OpenSSL asks for the other side's close_notify, for which a gate does not wait.
            with suppress(ssl.SSLError, ValueError):
                self._tls.unwrap()
            self._rest = memoryview(bytes(self._rest) + self._outgoing.read())

    def close(self, *, is_orderly: bool = True) -> None:
        """Close the connection; before an orderly end, send close_notify."""
        if is_orderly:
            self.say_goodbye()
            with suppress(OSError):
                self.flush()
        hang_up(self.socket, is_orderly=is_orderly)

    def _decrypt(self) -> memoryview:
        filled, self._has_more = 0, True
        try:
            # Read all that OpenSSL holds: for bytes left in OpenSSL the kernel does not report the socket as readable.
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
    """A plain connection on this machine: the other End of a bridge."""

    def __init__(self, raw: socket.socket) -> None:
        super().__init__(raw)
        self._next_bytes = _FIRST_BYTES

    def take(self) -> memoryview:
        """The bytes that have arrived; valid until the next call, and empty if there are none yet."""
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
        """Nothing to do: closing the socket signals the end."""

    def close(self, *, is_orderly: bool = True) -> None:
        hang_up(self.socket, is_orderly=is_orderly)


def hang_up(connection: socket.socket, *, is_orderly: bool) -> None:
    """Close a connection; without an orderly end it is reset, so that its reader gets an error."""
    if not is_orderly:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
