"""Where TLS records end: a gate wakes up when a record is complete."""

import select
import socket

from hypothesis import given
from hypothesis import strategies as st

from potluck.gates.records import RecordEnds


class Connection:
    """Notes what the kernel is asked to wait for."""

    awaited = 1

    def setsockopt(self, level, name, value):
        assert (level, name) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        assert value != self.awaited
        self.awaited = value


@given(st.lists(st.integers(1, 400), max_size=6), st.lists(st.integers(1, 300), min_size=1))
def test_what_is_awaited_is_the_rest_of_the_begun_record(sizes, cuts):
    stream = b"".join(b"\x17\x03\x03" + size.to_bytes(2, "big") + bytes(size) for size in sizes)
    records, connection, position = RecordEnds(), Connection(), 0
    ends = [sum(5 + size for size in sizes[: number + 1]) for number in range(len(sizes))]
    while position < len(stream):
        cut = cuts.pop() if cuts else 50
        records.follow(stream[position : position + cut])
        position = min(position + cut, len(stream))
        records.await_rest(connection)
        begun = [
            (end - 5 - size, end) for end, size in zip(ends, sizes, strict=True) if end - 5 - size + 5 <= position < end
        ]
        assert connection.awaited == (begun[0][1] - position if begun else 1)


def test_a_readable_socket_has_a_whole_record():
    near, far = socket.create_server(("127.0.0.1", 0)), socket.socket()
    with near, far:
        far.connect(near.getsockname())
        connection, _ = near.accept()
        with connection:
            connection.setblocking(False)
            records = RecordEnds()
            far.sendall(b"\x17\x03\x03\x00\x64" + bytes(40))
            assert select.select([connection], [], [], 5)[0]
            records.follow(connection.recv(1000))
            records.await_rest(connection)
            far.sendall(bytes(59))
            assert not select.select([connection], [], [], 0.2)[0]
            far.sendall(bytes(1))
            assert select.select([connection], [], [], 5)[0]
            assert len(connection.recv(1000)) == 60
            far.sendall(bytes(10))
            far.close()
            assert select.select([connection], [], [], 5)[0]
