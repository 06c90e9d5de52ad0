"""The one port that strangers can dial: garbage, slowness and crowds cost a member nothing."""

import asyncio
import os
import socket
import ssl
import time
from contextlib import suppress

import pytest

from potluck.gates import entrance as entrances
from potluck.gates import secure
from potluck.gates.entrance import GREETING, Entrance
from potluck.gates.handing_out import HandingOut
from potluck.gates.identity import load_or_make
from potluck.gates.links import BROKEN
from potluck.gates.messages import Open
from potluck.gates.secure import SecureEnd
from potluck.gates.sockets import prepare


@pytest.fixture(scope="module")
def identities(tmp_path_factory):
    return [load_or_make(tmp_path_factory.mktemp(name)) for name in ("lily", "fern")]


class Scene:
    """An entrance of fern's, which lily may pass."""

    def __init__(self, identities, with_service=False):
        self.lily, self.fern = identities
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.let_in, self.served = [], []
        self.handed_out = None
        context = secure.members_only(self.fern, [self.lily.certificate])
        service = secure.anybody(self.fern) if with_service else None
        self.entrance = Entrance(
            [self.listener],
            members=lambda: context,
            service=lambda: service,
            let_in=self._let_in,
            serve=self._serve,
            hand_out=HandingOut(lambda: self.handed_out).read,
        )

    async def _let_in(self, end):
        self.let_in.append(await end.receive(Open))
        end.close()

    async def _serve(self, end):
        self.served.append(end)
        end.close()

    async def __aenter__(self):
        self._task = asyncio.ensure_future(self.entrance.listen())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.listener.close()
        await asyncio.sleep(0.01)

    async def dial(self):
        connection = prepare(socket.socket())
        await asyncio.get_running_loop().sock_connect(connection, self.listener.getsockname())
        return connection

    async def pass_through(self):
        """What a member does; how long it took."""
        began = time.monotonic()
        connection = await self.dial()
        await asyncio.get_running_loop().sock_sendall(connection, GREETING)
        end = SecureEnd(connection, secure.towards(self.lily, self.fern.certificate), is_server=False)
        await asyncio.wait_for(end.shake_hands(), 5)
        num = len(self.let_in)
        await end.send(Open(run="a", port=1111))
        while len(self.let_in) == num:
            await asyncio.sleep(0.005)
        end.close()
        return time.monotonic() - began


async def answer_to(scene, content):
    """All that comes back."""
    connection, loop, received = await scene.dial(), asyncio.get_running_loop(), b""
    await loop.sock_sendall(connection, content)
    with suppress(ConnectionResetError):
        while piece := await asyncio.wait_for(loop.sock_recv(connection, 1 << 16), 7):
            received += piece
    connection.close()
    return received


def test_garbage_gets_no_answer_and_members_still_pass(identities):
    async def run():
        async with Scene(identities) as scene:
            for content in (b"\0", b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), b"potluck gate 2\n", b"\x16\x03\x01"):
                assert await answer_to(scene, content) == b""
            # After the greeting it is TLS that answers, with an alert and nothing else.
            assert len(await answer_to(scene, GREETING + os.urandom(5000))) < 100
            assert await scene.pass_through() < 1.0

    asyncio.run(run())


def test_who_is_slow_is_cut_off(identities, monkeypatch):
    monkeypatch.setattr(entrances, "HANDSHAKE_S", 0.3)

    async def run():
        async with Scene(identities) as scene:
            loop, began = asyncio.get_running_loop(), time.monotonic()
            silent, halfway = await scene.dial(), await scene.dial()
            await loop.sock_sendall(halfway, GREETING + b"\x16\x03\x01")
            for one in (silent, halfway):
                with suppress(ConnectionResetError):
                    assert await asyncio.wait_for(loop.sock_recv(one, 1), 3) == b""
                one.close()
            assert time.monotonic() - began < 2

    asyncio.run(run())


def test_a_crowd_of_idle_strangers_does_not_keep_a_member_out(identities):
    async def run():
        async with Scene(identities) as scene:
            strangers = [await scene.dial() for _ in range(300)]
            assert await scene.pass_through() < 2.0
            for one in strangers:
                one.close()

    asyncio.run(run())


def test_a_gate_without_a_service_has_no_https(identities):
    async def run(with_service):
        async with Scene(identities, with_service) as scene:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            end = SecureEnd(await scene.dial(), context, is_server=False)
            with suppress(*BROKEN):
                await asyncio.wait_for(end.shake_hands(), 3)
            await asyncio.sleep(0.05)
            end.close()
            return len(scene.served)

    assert asyncio.run(run(with_service=True)) == 1
    assert asyncio.run(run(with_service=False)) == 0


def test_a_member_that_plays_bytes_again_gets_nowhere(identities):
    """Recorded bytes of a good handshake are worth nothing: the other side's part is different every time."""

    async def run():
        async with Scene(identities) as scene:
            loop, recorded = asyncio.get_running_loop(), bytearray()
            connection = await scene.dial()
            send = loop.sock_sendall

            async def record(one, content):
                recorded.extend(content)
                await send(one, content)

            loop.sock_sendall = record
            await loop.sock_sendall(connection, GREETING)
            end = SecureEnd(connection, secure.towards(scene.lily, scene.fern.certificate), is_server=False)
            await end.shake_hands()
            await end.send(Open(run="a", port=1111))
            while not scene.let_in:
                await asyncio.sleep(0.005)
            loop.sock_sendall = send
            end.close()
            await answer_to(scene, bytes(recorded))
            assert len(scene.let_in) == 1

    asyncio.run(run())
