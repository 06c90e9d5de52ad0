"""High ports that answer whoever knows a word: with the same word, an echo for the round trip, a sink for the rate."""

import hashlib
import hmac
import secrets
import selectors
import socket
import struct
import threading
import time
from contextlib import suppress

WORD_BYTES = 32
PING, SINK = b"P", b"S"
STAMP = struct.Struct("!d")
COUNT = struct.Struct("!Qd")
CHUNK_BYTES = 1 << 16
_GIVE_UP_S = 10.0
_MOST_CONVERSATIONS = 32
_LOWEST_FREE, _HIGHEST_FREE = 20000, 32000  # below those that the kernel gives to connections


def digest(word: str, kind: bytes) -> bytes:
    """What either side shows to prove that it knows the word."""
    return hmac.digest(word.encode(), b"potluck probe " + kind, hashlib.sha256)


def greet(connection: socket.socket, word: str) -> bool:
    """The dialler's part: show that one knows the word; whether the other side does, too."""
    connection.sendall(digest(word, b"stream"))
    try:
        return hmac.compare_digest(receive(connection, WORD_BYTES), digest(word, b"answer"))
    except ConnectionResetError:  # it hung up on the wrong word, or does not know what this is
        return False


class OpenedPorts:
    """Listens from now until close(), on ports that the kernel chooses, as it does for Gloo and NCCL."""

    def __init__(self, address: str, num_ports: int, word: str) -> None:
        self._word = word
        self._selector = selectors.DefaultSelector()
        self._sockets = [socket.create_server((address, 0), backlog=16) for _ in range(num_ports)]
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._datagrams.bind((address, 0))
        for one in (*self._sockets, self._datagrams):
            self._selector.register(one, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._conversations: dict[threading.Thread, socket.socket] = {}
        self._thread = threading.Thread(target=self._serve, name="doctor ports", daemon=True)
        self._thread.start()

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(one.getsockname()[1] for one in self._sockets)

    @property
    def datagram_port(self) -> int:
        return int(self._datagrams.getsockname()[1])

    def close(self) -> None:
        """Stop listening, and hang up on whoever still talks."""
        self._wake.send(b"x")
        self._thread.join()
        for one in (*self._sockets, self._datagrams, self._wake, self._woken):
            one.close()
        self._selector.close()
        for thread, connection in self._conversations.items():
            with suppress(OSError):  # it has ended
                connection.shutdown(socket.SHUT_RDWR)
            thread.join()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._datagrams:
                    self._echo_datagram()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._receive(key.fileobj.accept()[0])

    def _receive(self, connection: socket.socket) -> None:
        """Talk to each in a thread of its own; to no more at a time than could be machines of a run."""
        self._conversations = {thread: one for thread, one in self._conversations.items() if thread.is_alive()}
        if len(self._conversations) >= _MOST_CONVERSATIONS:
            connection.close()
            return
        thread = threading.Thread(target=self._converse, args=(connection,), daemon=True)
        self._conversations[thread] = connection
        thread.start()

    def _echo_datagram(self) -> None:
        """Tell how long a datagram was; the answer is short, so that only one direction is tried."""
        data, sender = self._datagrams.recvfrom(1 << 16)
        if hmac.compare_digest(data[:WORD_BYTES], digest(self._word, b"datagram")):
            self._datagrams.sendto(struct.pack("!I", len(data)), sender)

    def _converse(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_GIVE_UP_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                if not hmac.compare_digest(receive(connection, WORD_BYTES), digest(self._word, b"stream")):
                    return
                connection.sendall(digest(self._word, b"answer"))
                while order := connection.recv(1):
                    if order == PING:
                        connection.sendall(STAMP.pack(time.time()))
                    elif order == SINK:
                        connection.sendall(COUNT.pack(*_drain(connection)))
            except OSError:  # the dialler went away
                return


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly that many bytes."""
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionResetError("closed early")
        parts += part
    return parts


def _drain(connection: socket.socket) -> tuple[int, float]:
    """Swallow one byte stream: chunks, each announced by its length, until one of length 0."""
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
    """A port that nobody has at this moment, and that no connection gets by chance."""
    for _ in range(100):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
            try:
                one.bind((address, _LOWEST_FREE + secrets.randbelow(_HIGHEST_FREE - _LOWEST_FREE)))
            except OSError:
                continue
            return int(one.getsockname()[1])
    raise OSError(f"no free port on {address}")
