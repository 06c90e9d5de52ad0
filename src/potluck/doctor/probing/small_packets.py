"""Connections that get through where large packets are lost: that is one of the things that the doctor talks about."""

import socket

_SEGMENT_BYTES = 500


def use_small_packets(one: socket.socket) -> None:
    """Both sides send small packets only. Before it connects or listens; not on every system."""
    if hasattr(socket, "TCP_MAXSEG"):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES)
