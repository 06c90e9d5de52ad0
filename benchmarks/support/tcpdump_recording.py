"""What tcpdump has recorded of TCP connections, put together: the bytes that each side sent, in order."""

import socket
import struct
from collections import defaultdict
from pathlib import Path

_FILE_HEADER, _RECORD_HEADER = 24, struct.Struct("<IIII")
_ETHERNET, _IP4, _TCP = 14, 0x0800, 6


def read_sent(file: Path, port: int) -> list[tuple[str, bytes]]:
    """To which address each connection to this port went, and what it sent there from its first byte on.

    Connections that began before the recording are left out.
    """
    content, at = file.read_bytes(), _FILE_HEADER
    first: dict[bytes, int] = {}
    pieces: dict[bytes, dict[int, bytes]] = defaultdict(dict)
    while at + _RECORD_HEADER.size <= len(content):
        _, _, size, _ = _RECORD_HEADER.unpack_from(content, at)
        frame = content[at + _RECORD_HEADER.size : at + _RECORD_HEADER.size + size]
        at += _RECORD_HEADER.size + size
        if int.from_bytes(frame[12:14], "big") != _IP4 or frame[_ETHERNET + 9] != _TCP:
            continue
        packet = frame[_ETHERNET:]
        packet = packet[: int.from_bytes(packet[2:4], "big")]
        segment = packet[(packet[0] & 15) * 4 :]
        if int.from_bytes(segment[2:4], "big") != port:
            continue
        connection = packet[12:20] + segment[:2]  # both addresses, and the port of who dialled
        sequence = int.from_bytes(segment[4:8], "big")
        if segment[13] & 2:  # SYN
            first[connection] = sequence + 1
        elif connection in first and (payload := segment[segment[12] >> 4 << 2 :]):
            pieces[connection][(sequence - first[connection]) % (1 << 32)] = payload
    return [(socket.inet_ntoa(key[4:8]), _in_order(parts)) for key, parts in pieces.items()]


def _in_order(parts: dict[int, bytes]) -> bytes:
    found = bytearray()
    for offset in sorted(parts):
        if offset > len(found):
            break  # a packet is missing
        found[offset:] = parts[offset] if offset + len(parts[offset]) > len(found) else found[offset:]
    return bytes(found)
