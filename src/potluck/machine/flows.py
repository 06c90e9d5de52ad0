"""How fast this process's connections really send, as Linux itself keeps count: nothing extra goes over the wire."""

import os
import socket
import struct
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_FDS = Path("/proc/self/fd")
_TCP_INFO = getattr(socket, "TCP_INFO", 11)
_SIZE = 192
_COUNTS = struct.Struct("@120xQ40xQQ8x")  # struct tcp_info: bytes_acked, busy_time and rwnd_limited, both in us
_LEAST_BYTES = 1 << 17  # less says nothing about a link


class _Sent(NamedTuple):
    num_bytes: int
    seconds: float


class FlowMeter:
    """Rates since the last look, by peer."""

    def __init__(self) -> None:
        self._before = _read()

    def look(self) -> tuple[str, dict[str, float]]:
        """This machine's address on the way to its peers, and bytes/s by a peer's address, while there was something
        to send and the peer could take it.
        """
        now, before = _read(), self._before
        self._before = now
        sent: dict[tuple[str, str], list[_Sent]] = defaultdict(list)
        for key, (num_bytes, seconds) in now.items():
            earlier = before.get(key, _Sent(0, 0.0))
            if num_bytes >= earlier.num_bytes and seconds >= earlier.seconds:
                sent[key[0], key[2]].append(_Sent(num_bytes - earlier.num_bytes, seconds - earlier.seconds))
        totals = {pair: _Sent(*map(sum, zip(*parts, strict=True))) for pair, parts in sent.items()}
        known = {pair: total for pair, total in totals.items() if total.num_bytes >= _LEAST_BYTES and total.seconds > 0}
        if not known:
            return "", {}
        (own, _), _ = max(known.items(), key=lambda item: item[1].num_bytes)
        return own, {
            peer: total.num_bytes / total.seconds for (mine, peer), total in known.items() if mine == own != peer
        }


def _read() -> dict[tuple[str, int, str, int], _Sent]:
    """What each connection has sent, and how long that took it; empty where the system does not tell."""
    found = {}
    for number in _socket_numbers():
        # It may just have been closed, or be no connection.
        with suppress(OSError, struct.error), socket.socket(fileno=os.dup(number)) as connection:
            if connection.type != socket.SOCK_STREAM or connection.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            own, peer = connection.getsockname(), connection.getpeername()
            acked, busy_us, stalled_us = _COUNTS.unpack(connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _SIZE))
            found[own[0], own[1], peer[0], peer[1]] = _Sent(acked, max(0, busy_us - stalled_us) / 1e6)
    return found


def _socket_numbers() -> list[int]:
    numbers = []
    with suppress(OSError):
        for entry in _FDS.iterdir():
            with suppress(OSError):
                if str(entry.readlink()).startswith("socket:"):
                    numbers.append(int(entry.name))
    return numbers
