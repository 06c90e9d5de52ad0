"""Random high ports that answer whoever knows a word: echo for the round trip, a sink for the rate."""

import hashlib
import hmac
import secrets
import selectors
import socket
import struct
import threading
import time

WORD_BYTES = 32
PING, SINK = b"P", b"S"
STAMP = struct.Struct("!d")
COUNT = struct.Struct("!Qd")
CHUNK_BYTES = 1 << 16
_GIVE_UP_S = 10.0
_LOWEST, _HIGHEST = 20000, 60999  # where Gloo, NCCL and the kernel's own choice lie


def digest(word: str, kind: bytes) -> bytes:
    """What a dialler shows to prove that it knows the word."""
    return hmac.digest(word.encode(), b"potluck probe " + kind, hashlib.sha256)


class OpenedPorts:
    """Listens from now until close()."""

    def __init__(self, address: str, num_ports: int, word: str) -> None:
        self._word = word
        self._selector = selectors.DefaultSelector()
        self._sockets = [_bound(address, socket.SOCK_STREAM) for _ in range(num_ports)]
        self._datagrams = _bound(address, socket.SOCK_DGRAM)
        for one in self._sockets:
            one.listen(16)
        for one in (*self._sockets, self._datagrams):
            self._selector.register(one, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._served: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._serve, name="doctor ports", daemon=True)
        self._thread.start()

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(one.getsockname()[1] for one in self._sockets)

    @property
    def datagram_port(self) -> int:
        return int(self._datagrams.getsockname()[1])

    def close(self) -> None:
        """Stop listening; conversations that go on end by themselves."""
        self._wake.send(b"x")
        self._thread.join()
        for one in (*self._sockets, self._datagrams, self._wake, self._woken):
            one.close()
        self._selector.close()
        for thread in self._served:
            thread.join(_GIVE_UP_S)

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._datagrams:
                    self._echo_datagram()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    connection, _ = key.fileobj.accept()
                    thread = threading.Thread(target=self._converse, args=(connection,), daemon=True)
                    thread.start()
                    self._served.append(thread)

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
                connection.sendall(b"!")
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


def _bound(address: str, kind: socket.SocketKind) -> socket.socket:
    """A socket on a random port that is free."""
    for _ in range(100):
        one = socket.socket(socket.AF_INET, kind)
        try:
            one.bind((address, _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)))
        except OSError:
            one.close()
            continue
        return one
    raise OSError(f"no free port on {address}")


def free_port(address: str) -> int:
    """A port that nobody has at this moment."""
    with _bound(address, socket.SOCK_STREAM) as one:
        return int(one.getsockname()[1])
