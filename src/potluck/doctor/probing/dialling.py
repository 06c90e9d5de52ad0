"""Dial another machine's open ports: what comes of each, then round trip, clock, rate and packet size."""

import errno
import socket
import statistics
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec

from potluck.doctor.case import OPEN, REFUSED, SILENT, STALLED, STRANGER, UNREACHABLE, Link
from potluck.doctor.probing.asks import Dial
from potluck.doctor.probing.ports import CHUNK_BYTES, COUNT, PING, SINK, STAMP, digest, greet, receive

DIAL_S = 1.5
_NUM_PINGS = 7
_RATE_S = 0.2
_SEND_BUFFER_BYTES = 1 << 18  # little waits in the kernel when the time is up
_STALL_S = 2.0
_UDP_IP_BYTES = 28
_SMALLEST_MTU = 500
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3
_DATAGRAM_S = 0.1


def dial(ask: Dial) -> Link:
    """Everything that this machine can see of the way to the target."""
    with ThreadPoolExecutor(max_workers=max(1, len(ask.ports))) as pool:
        met = pool.map(lambda port: try_port(ask.address, port, ask.word), ask.ports)
        outcomes = dict(zip(ask.ports, met, strict=True))
    link = Link(source=ask.source, target=ask.target, address=ask.address, ports=outcomes)
    passed = _largest_passing(ask) if ask.mtu is not None else None
    if passed is not None:
        link = msgspec.structs.replace(link, mtu_wanted=ask.mtu, mtu_passed=passed)
    open_port = next((port for port, outcome in outcomes.items() if outcome == OPEN), None)
    if open_port is None:
        return link
    # Where large packets are lost, a stream would only stall.
    measures_rate = ask.measures_rate and (passed is None or passed == ask.mtu)
    try:
        return _measured(link, ask, open_port, measures_rate=measures_rate)
    except OSError:  # it connected, and then nothing moved
        return msgspec.structs.replace(link, ports={**outcomes, open_port: STALLED})


def try_port(address: str, port: int, word: str | None = None, *, timeout_s: float = DIAL_S) -> str:
    """What comes of one connection; with a word, whether it is the machine that opened the port for it."""
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
    """What a connection that failed has met."""
    if isinstance(error, ConnectionRefusedError):
        return REFUSED
    return UNREACHABLE if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EACCES) else SILENT


def _measured(link: Link, ask: Dial, port: int, *, measures_rate: bool) -> Link:
    with socket.create_connection((ask.address, port), timeout=DIAL_S) as connection:
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
            # The answer was written halfway through the round trip.
            offsets.append(theirs - (sent_at + trips[-1] / 2))
        rate = _send_stream(connection) if measures_rate else None
    fastest = min(range(_NUM_PINGS), key=trips.__getitem__)
    return msgspec.structs.replace(
        link,
        round_trip_s=statistics.median(trips),
        clock_offset_s=offsets[fastest],
        bytes_per_s=rate,
    )


def _send_stream(connection: socket.socket) -> float:
    """Send for a fraction of a second; the receiver tells how much came in how long."""
    chunk = struct.pack("!I", CHUNK_BYTES) + bytes(CHUNK_BYTES)
    connection.sendall(SINK)
    deadline = time.perf_counter() + _RATE_S
    while time.perf_counter() < deadline:
        connection.sendall(chunk)
    connection.sendall(struct.pack("!I", 0))
    received, seconds = COUNT.unpack(receive(connection, COUNT.size))
    return float(received / seconds) if seconds else 0.0


def _largest_passing(ask: Dial) -> int | None:
    """The largest packet that arrives unfragmented; None if datagrams do not pass at all, which training survives."""
    assert ask.mtu is not None
    if not sys.platform.startswith("linux"):
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((ask.own_address, 0))
        probe.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
        probe.settimeout(_DATAGRAM_S)
        target = (ask.address, ask.datagram_port)
        if not _passes(probe, target, ask.word, _SMALLEST_MTU):
            return None
        if _passes(probe, target, ask.word, ask.mtu):
            return ask.mtu
        passed, lost = _SMALLEST_MTU, ask.mtu
        while lost - passed > 1:
            middle = (passed + lost) // 2
            if _passes(probe, target, ask.word, middle):
                passed = middle
            else:
                lost = middle
        return passed


def _passes(probe: socket.socket, target: tuple[str, int], word: str, packet_bytes: int) -> bool:
    payload = digest(word, b"datagram").ljust(packet_bytes - _UDP_IP_BYTES, b"\0")
    for _ in range(3):
        try:
            probe.sendto(payload, target)
            while struct.unpack("!I", probe.recv(64))[0] != len(payload):
                pass
        except OSError:  # too large for the interface itself, refused, or no answer in time
            continue
        return True
    return False
