"""Send rates of TCP connections, from Linux's own counters (TCP_INFO): measuring sends nothing over the wire."""

import os
import socket
import struct
from collections import defaultdict
from collections.abc import Hashable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

_FDS = Path("/proc/self/fd")
_TCP_INFO = getattr(socket, "TCP_INFO", 11)
_SIZE = 192
_COUNTS = struct.Struct("@120xQ40xQQ8x")  # struct tcp_info: bytes_acked, busy_time and rwnd_limited, both in us
_LEAST_BYTES = 1 << 17  # fewer bytes say nothing about a link
Peer = TypeVar("Peer", bound=Hashable)


class Sent(NamedTuple):
    """Bytes that the peer has acknowledged, and the seconds of sending in which the peer's window was not full."""

    num_bytes: int
    seconds: float


def read_sent(connection: socket.socket) -> Sent | None:
    """The counters of one connection since it opened; None where the system does not provide them."""
    try:
        counts = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _SIZE)
        acked, busy_us, stalled_us = _COUNTS.unpack(counts)
    except (OSError, struct.error):
        return None
    return Sent(acked, max(0, busy_us - stalled_us) / 1e6)


def rates_between(before: Mapping[tuple[Peer, int], Sent], now: Mapping[tuple[Peer, int], Sent]) -> dict[Peer, float]:
    """Bytes a second to each peer between two readings of all counters, keyed by (peer, connection)."""
    parts: dict[Peer, list[Sent]] = defaultdict(list)
    for key, (num_bytes, seconds) in now.items():
        earlier = before.get(key, Sent(0, 0.0))
        if num_bytes >= earlier.num_bytes and seconds >= earlier.seconds:
            parts[key[0]].append(Sent(num_bytes - earlier.num_bytes, seconds - earlier.seconds))
    totals = {peer: Sent(*map(sum, zip(*some, strict=True))) for peer, some in parts.items()}
    return {
        peer: total.num_bytes / total.seconds
        for peer, total in totals.items()
        if total.num_bytes >= _LEAST_BYTES and total.seconds > 0
    }


class FlowMeter:
    """Send rates of this process's own connections since the last `look`, by the peer's address."""

    def __init__(self) -> None:
        self._before = _read()

    def look(self) -> tuple[str, dict[str, float]]:
        """This machine's address on the route to its peers, and bytes/s by a peer's address.

        Only time counts in which there was something to send and the peer's window was not full.
        """
        now, before = _read(), self._before
        self._before = now
        rates = rates_between(before, now)
        if not rates:
            return "", {}
        moved = {pair: sum(now[key].num_bytes for key in now if key[0] == pair) for pair in rates}
        own, _ = max(moved, key=moved.__getitem__)
        return own, {peer: rate for (mine, peer), rate in rates.items() if mine == own != peer}


def _read() -> dict[tuple[tuple[str, str], int], Sent]:
    """The counters of all connections, by (own address, peer's address) and both ports as one number."""
    found = {}
    for number in _socket_numbers():
        # The socket may just have been closed, or not be connected.
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
            if connection.type != socket.SOCK_STREAM or connection.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            own, peer = connection.getsockname(), connection.getpeername()
            if (sent := read_sent(connection)) is not None:
                found[(own[0], peer[0]), own[1] << 16 | peer[1]] = sent
    return found


def _socket_numbers() -> list[int]:
    numbers = []
    with suppress(OSError):
        for entry in _FDS.iterdir():
            with suppress(OSError):
                if str(entry.readlink()).startswith("socket:"):
                    numbers.append(int(entry.name))
    return numbers
