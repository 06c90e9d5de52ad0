"""Bytes through two gates' worth of TLS: the same, in order, in both directions, and an end looks like an end."""

import asyncio
import hashlib
import os
import random
import socket
import ssl

import pytest

from potluck.gates import secure
from potluck.gates.bridge import REFUSED, WELCOME, Bridge
from potluck.gates.identity import load_or_make, make_certificate
from potluck.gates.links import BROKEN
from potluck.gates.messages import Open
from potluck.gates.secure import EndOfStreamError, PlainEnd, SecureEnd
from potluck.gates.sockets import prepare

LITTLE = 1 << 14


@pytest.fixture(scope="module")
def identities(tmp_path_factory):
    return [load_or_make(tmp_path_factory.mktemp(name)) for name in ("lily", "fern")]


def pair(small=False):
    """Two ends of a connection over loopback; small ones fill up soon."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        if small:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LITTLE)
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    if small:
        for end in (one, other):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LITTLE)
    return prepare(one), prepare(other)


async def shake(identities, client_trusts=None, server_trusts=None, small=False):
    lily, fern = identities
    near, far = pair(small)
    dialled = SecureEnd(near, secure.towards(lily, client_trusts or fern.certificate), is_server=False)
    served = SecureEnd(
        far,
        secure.members_only(fern, [lily.certificate] if server_trusts is None else server_trusts),
        is_server=True,
    )
    try:
        await asyncio.wait_for(asyncio.gather(dialled.shake_hands(), served.shake_hands()), 5)
    except BaseException:
        near.close()
        far.close()
        raise
    return dialled, served


class Way:
    """A worker's connection, carried through two gates to another worker's."""

    async def build(self, identities, small=False, answer=WELCOME):
        dialled, served = await shake(identities, small=small)
        self.worker, stand_in = pair(small)
        inside, self.peer = pair(small)
        self.ended = []
        await served.send_plain(answer)
        self.bridges = [
            Bridge(PlainEnd(stand_in), dialled, awaits_welcome=True, ended=self.ended.append),
            Bridge(PlainEnd(inside), served, awaits_welcome=False, ended=self.ended.append),
        ]
        for bridge in self.bridges:
            bridge.begin()
        return self

    async def over(self):
        while len(self.ended) < 2:
            await asyncio.sleep(0.01)

    def close(self):
        for end in (self.worker, self.peer):
            end.close()


async def send_all(loop, connection, content, generator):
    left = memoryview(content)
    while left:
        size = generator.choice((1, 100, 10_000, 300_000))
        await loop.sock_sendall(connection, left[:size])
        left = left[size:]


async def read_all(loop, connection, size, pause_s=0.0):
    digest, count = hashlib.sha256(), 0
    while count < size:
        piece = await loop.sock_recv(connection, 1 << 16)
        assert piece
        digest.update(piece)
        count += len(piece)
        if pause_s:
            await asyncio.sleep(pause_s)
    return digest.digest()


@pytest.mark.parametrize(("small", "pause_s"), [(False, 0.0), (True, 0.0), (True, 0.001)])
def test_what_is_sent_arrives_in_both_directions_at_once(identities, small, pause_s):
    async def run():
        way, loop = await Way().build(identities, small), asyncio.get_running_loop()
        there, back = os.urandom(3_000_000), os.urandom(2_000_000)
        sending = [
            send_all(loop, way.worker, there, random.Random(1)),
            send_all(loop, way.peer, back, random.Random(2)),
        ]
        reading = [read_all(loop, way.peer, len(there), pause_s), read_all(loop, way.worker, len(back), pause_s)]
        _, _, arrived, returned = await asyncio.wait_for(asyncio.gather(*sending, *reading), 60)
        assert arrived == hashlib.sha256(there).digest()
        assert returned == hashlib.sha256(back).digest()
        outward, inward = way.bridges
        assert (outward.sent_bytes, outward.received_bytes) == (len(there), len(back))
        assert (inward.sent_bytes, inward.received_bytes) == (len(back), len(there))
        way.close()
        await asyncio.wait_for(way.over(), 5)

    asyncio.run(run())


def test_the_last_bytes_arrive_before_the_end(identities):
    async def run():
        way, loop = await Way().build(identities, small=True), asyncio.get_running_loop()
        content = os.urandom(1_000_000)
        sending = asyncio.ensure_future(loop.sock_sendall(way.worker, content))
        sending.add_done_callback(lambda _: way.worker.close())
        arrived = await asyncio.wait_for(read_all(loop, way.peer, len(content), 0.0005), 60)
        assert arrived == hashlib.sha256(content).digest()
        assert await asyncio.wait_for(loop.sock_recv(way.peer, 1), 5) == b""
        await asyncio.wait_for(way.over(), 5)
        way.close()

    asyncio.run(run())


def test_a_connection_that_breaks_off_is_reset_on_the_other_side(identities):
    async def run():
        way, loop = await Way().build(identities), asyncio.get_running_loop()
        way.bridges[1].far.socket.shutdown(socket.SHUT_RDWR)  # as when the network goes, without a word of TLS
        with pytest.raises(ConnectionResetError):
            while await asyncio.wait_for(loop.sock_recv(way.worker, 1), 5):
                pass
        await asyncio.wait_for(way.over(), 5)
        way.close()

    asyncio.run(run())


def test_who_is_not_welcome_is_cut_off(identities):
    async def run():
        way, loop = await Way().build(identities, answer=REFUSED), asyncio.get_running_loop()
        with pytest.raises(ConnectionResetError):
            while await asyncio.wait_for(loop.sock_recv(way.worker, 1), 5):
                pass
        await asyncio.wait_for(way.over(), 5)
        way.close()

    asyncio.run(run())


def test_messages_come_whole_and_what_follows_is_the_stream(identities):
    async def run():
        dialled, served = await shake(identities)
        await dialled.send(Open(run="a", port=7777))
        await dialled.send_plain(b"and then bytes")
        assert await served.receive(Open) == Open(run="a", port=7777)
        assert bytes(served.take()) == b"and then bytes"
        dialled.close()
        with pytest.raises(EndOfStreamError) as end:
            while not (rest := served.take()):
                await asyncio.sleep(0.01)
            assert not rest
        assert end.value.is_orderly
        served.close()

    asyncio.run(run())


def test_only_members_shake_hands(identities, tmp_path):
    _, fern = identities
    stranger = load_or_make(tmp_path / "stranger")

    async def refused(identities=identities, **trusts):
        ends = []
        with pytest.raises(BROKEN):
            ends += await shake(identities, **trusts)
            # TLS 1.3: who dials learns of a refused certificate with the first answer.
            await asyncio.wait_for(ends[0].receive(Open), 2)
        for end in ends:
            end.close()

    async def run():
        await refused(identities=[stranger, fern])  # a certificate that nobody knows
        await refused(server_trusts=[])  # a member that has left
        await refused(client_trusts=stranger.certificate)  # another machine in the place of the one that is dialled
        expired = tmp_path / "expired"
        expired.mkdir()
        for file, content in zip(("certificate.pem", "key.pem"), make_certificate(days=-1), strict=True):
            (expired / file).write_text(content)
        late = load_or_make(expired)
        await refused(identities=[late, fern], server_trusts=[late.certificate])

    asyncio.run(run())


def test_a_session_cannot_be_taken_up_again(identities):
    """Who resumes a session shows no certificate, so a member that has left could come back."""
    lily, fern = identities
    context = secure.members_only(fern, [lily.certificate])
    assert context.num_tickets == 0
    assert context.minimum_version == secure.towards(lily, fern.certificate).minimum_version == ssl.TLSVersion.TLSv1_3
