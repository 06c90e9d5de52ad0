"""Dial another machine's port: the outcome, then round trip, clock offset and rate."""

import errno
import socket
import statistics
import struct
import time

import msgspec

from potluck.doctor.examination import OPEN, REFUSED, SILENT, STALLED, STRANGER, UNREACHABLE, DialledLink
from potluck.doctor.probing.asks import Dial
from potluck.doctor.probing.ports import CHUNK_BYTES, COUNT, PING, SINK, STAMP, dialled, greet, receive

DIAL_S = 1.5
_NUM_PINGS = 7
_RATE_S = 0.2
_SEND_BUFFER_BYTES = 1 << 18  # small, so that little waits in the kernel when the time is up
_STALL_S = 2.0


def dial(ask: Dial) -> DialledLink:
    """Dial the target, and measure the link to it."""
    outcome = try_port(ask.address, ask.port, ask.word)
    link = DialledLink(source=ask.source, target=ask.target, outcome=outcome)
    if outcome != OPEN:
        return link
    try:
        return _measured(link, ask)
    except OSError:  # it connected, and then nothing moved
        return _without_large_packets(link, ask)


def try_port(address: str, port: int, word: str | None = None, *, timeout_s: float = DIAL_S) -> str:
    """The outcome of one connection; with `word`, STRANGER if the other side does not know the word."""
    try:
        connection = socket.create_connection((address, port), timeout=timeout_s)
    except OSError as error:
        return outcome_of(error)
    with connection:
        try:
            return OPEN if word is None or greet(connection, word) else STRANGER
        except OSError:  # it connected, and then nothing moved
            return STALLED


def outcome_of(error: OSError) -> str:
    """The outcome that an error of connecting means: REFUSED, UNREACHABLE or SILENT."""
    if isinstance(error, ConnectionRefusedError):
        return REFUSED
    return UNREACHABLE if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EACCES) else SILENT


def _without_large_packets(link: DialledLink, ask: Dial) -> DialledLink:
    """Measure with small packets: if that works, the link loses large packets; if not, the link is STALLED."""
    try:
        link = _measured(link, ask, with_small_packets=True)
    except OSError:
        return msgspec.structs.replace(link, outcome=STALLED)
    return msgspec.structs.replace(link, bytes_per_s=None, loses_large_packets=True)


def _measured(link: DialledLink, ask: Dial, *, with_small_packets: bool = False) -> DialledLink:
    with dialled(ask.address, ask.port, DIAL_S, with_small_packets=with_small_packets) as connection:
        connection.settimeout(_STALL_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        greet(connection, ask.word)
        trips, offsets = [], []
        for _ in range(_NUM_PINGS):
            sent_at, start = time.time(), time.perf_counter()
            connection.sendall(PING)
            (theirs,) = STAMP.unpack(receive(connection, STAMP.size))
            trips.append(time.perf_counter() - start)
            # We assume that the target took its time stamp halfway through the round trip.
            offsets.append(theirs - (sent_at + trips[-1] / 2))
        rate = _send_stream(connection)
    fastest = min(range(_NUM_PINGS), key=trips.__getitem__)
    return msgspec.structs.replace(
        link,
        round_trip_s=statistics.median(trips),
        clock_offset_s=offsets[fastest],
        bytes_per_s=rate,
    )


def _send_stream(connection: socket.socket) -> float:
    """Send for a fraction of a second; bytes a second, as the receiver counted them."""
    chunk = struct.pack("!I", CHUNK_BYTES) + bytes(CHUNK_BYTES)
    connection.sendall(SINK)
    deadline = time.perf_counter() + _RATE_S
    while time.perf_counter() < deadline:
        connection.sendall(chunk)
    connection.sendall(struct.pack("!I", 0))
    received, seconds = COUNT.unpack(receive(connection, COUNT.size))
    return float(received / seconds) if seconds else 0.0
