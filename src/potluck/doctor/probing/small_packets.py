"""Connections with small packets only, so that the doctor still works where a network loses large packets."""

import socket

_SEGMENT_BYTES = 500


def use_small_packets(one: socket.socket) -> None:
    """Make both sides send small packets only, where the system can. To be called before connecting or listening."""
    if hasattr(socket, "TCP_MAXSEG"):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES)
