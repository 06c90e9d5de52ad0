"""Where TLS records end in a stream of bytes: a gate wakes up for whole records, not for every packet.

OpenSSL decrypts a record only when all of it has arrived. On a link of 100 Mbit/s a record of 16 KB arrives in eleven
packets, and a gate that woke up for each would spend most of its processor time on wake-ups.
"""

import socket

_HEADER_BYTES = 5  # type, version, and in the last two the length of the rest
_LENGTH_PLACE = 3
_CAN_WAIT = hasattr(socket, "SO_RCVLOWAT")


class RecordEnds:
    """Follows the records of one connection, from its first byte on."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._body_left = 0
        self._awaited = 1

    def follow(self, received: memoryview | bytes) -> None:
        """Take note of the next bytes of the stream."""
        position = 0
        while position < len(received):
            if self._body_left:
                taken = min(self._body_left, len(received) - position)
                self._body_left -= taken
            else:
                taken = min(_HEADER_BYTES - len(self._header), len(received) - position)
                self._header += received[position : position + taken]
                if len(self._header) == _HEADER_BYTES:
                    self._body_left = int.from_bytes(self._header[_LENGTH_PLACE:], "big")
                    self._header.clear()
            position += taken

    def await_rest(self, connection: socket.socket) -> None:
        """Have the kernel report the connection as readable when the begun record is complete, or at its end."""
        awaited = self._body_left or 1
        if awaited != self._awaited and _CAN_WAIT:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, awaited)
            self._awaited = awaited
