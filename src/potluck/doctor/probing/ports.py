"""A port for measurements by diallers that know a word: an echo for the round trip, a sink for the rate."""

import hmac
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from potluck.core.proofs import prove
from potluck.doctor.probing.small_packets import use_small_packets

WORD_BYTES = 32
PING, SINK = b"P", b"S"
STAMP = struct.Struct("!d")
COUNT = struct.Struct("!Qd")
CHUNK_BYTES = 1 << 16
_GIVE_UP_S = 10.0
_MOST_CONVERSATIONS = 32
_LOWEST_FREE, _HIGHEST_FREE = 20000, 32000  # below Linux's ephemeral ports


def digest(word: str, kind: bytes) -> bytes:
    """The digest that a side sends to prove that it knows the word."""
    return prove(word.encode(), "probe", kind)


def greet(connection: socket.socket, word: str) -> bool:
    """The dialler's handshake: prove that it knows the word; whether the other side knows the word, too."""
    connection.sendall(digest(word, b"stream"))
    try:
        return hmac.compare_digest(receive(connection, WORD_BYTES), digest(word, b"answer"))
    except ConnectionResetError:  # the other side hung up: it has another word, or is another program
        return False


class OpenedPort:
    """Listens until close(). A connection that does not begin with the word's digest goes to `others`, if given.

    Where large packets are lost, the doctor's own connections still work: their diallers ask for small packets.
    """

    def __init__(
        self,
        address: str,
        port: int,
        word: str,
        others: Callable[[socket.socket, bytes], None] | None = None,
    ) -> None:
        self.word = word
        self._others = others
        self._server = socket.create_server((address, port), backlog=16)
        self._conversations: dict[threading.Thread, socket.socket] = {}
        self._thread = threading.Thread(target=self._serve, name="doctor port", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    def close(self) -> None:
        """Stop listening, and end all connections."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()
        for thread, connection in self._conversations.items():
            with suppress(OSError):  # it has ended
                connection.shutdown(socket.SHUT_RDWR)
            thread.join()

    def _serve(self) -> None:
        """Serve each connection in a thread of its own, and refuse more than the machines of a run could need."""
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._conversations = {thread: one for thread, one in self._conversations.items() if thread.is_alive()}
            if len(self._conversations) >= _MOST_CONVERSATIONS:
                connection.close()
                continue
            thread = threading.Thread(target=self._converse, args=(connection,), daemon=True)
            self._conversations[thread] = connection
            thread.start()

    def _converse(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_GIVE_UP_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                begun = receive(connection, WORD_BYTES)
                if hmac.compare_digest(begun, digest(self.word, b"stream")):
                    connection.sendall(digest(self.word, b"answer"))
                    self._measure(connection)
                elif self._others is not None:
                    self._others(connection, begun)
            except OSError:  # the dialler went away
                return

    def _measure(self, connection: socket.socket) -> None:
        while order := connection.recv(1):
            if order == PING:
                connection.sendall(STAMP.pack(time.time()))
            elif order == SINK:
                connection.sendall(COUNT.pack(*_drain(connection)))


def dialled(address: str, port: int, timeout_s: float, *, with_small_packets: bool = False) -> socket.socket:
    """A TCP connection; OSError if dialling fails."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if with_small_packets:
            use_small_packets(connection)
        connection.settimeout(timeout_s)
        connection.connect((address, port))
    except OSError:
        connection.close()
        raise
    return connection


def receive(connection: socket.socket, size: int) -> bytes:
    """Receive exactly `size` bytes; ConnectionResetError if the connection ends before."""
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionResetError("closed early")
        parts += part
    return parts


def _drain(connection: socket.socket) -> tuple[int, float]:
    """Receive chunks, each after its length, until a length of 0; the number of bytes and the seconds they took."""
    total, buffer, start = 0, bytearray(CHUNK_BYTES), 0.0
    while size := struct.unpack("!I", receive(connection, 4))[0]:
        start = start or time.perf_counter()
        left = min(size, CHUNK_BYTES)
        while left:
            got = connection.recv_into(memoryview(buffer)[:left])
            if not got:
                raise ConnectionResetError("closed early")
            left -= got
            total += got
    return total, time.perf_counter() - start


def free_port(address: str) -> int:
    """A port that no program has now, and that the kernel gives to no outgoing connection."""
    for _ in range(100):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
            try:
                one.bind((address, _LOWEST_FREE + secrets.randbelow(_HIGHEST_FREE - _LOWEST_FREE)))
            except OSError:
                continue
            return int(one.getsockname()[1])
    raise OSError(f"no free port on {address}")
