"""The one file that a gate sends over plain HTTP: whoever has its key gets it, everybody else gets no answer."""

import asyncio
import socket
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from potluck.gates import entrance as entrances
from potluck.gates import handing_out
from potluck.gates.identity import load_or_make
from potluck.gates.messages import HandedOut
from tests.unit.gates.test_entrance import Scene, answer_to

KEY, NAME = "abcdefgh23456789", "potluck-0.1.0-py3-none-any.whl"
CONTENT = bytes(range(256)) * 2500
GET = f"GET /{KEY}/{NAME} HTTP/1.1\r\nHost: rosa\r\n\r\n".encode()


@pytest.fixture(scope="module")
def identities(tmp_path_factory):
    return [load_or_make(tmp_path_factory.mktemp(name)) for name in ("lily", "fern")]


@pytest.fixture
def offered(tmp_path):
    (tmp_path / "own").write_bytes(CONTENT)
    return HandedOut(key=KEY, name=NAME, file=str(tmp_path / "own"))


def on_a_scene(identities, offered, part):
    async def run():
        async with Scene(identities, with_service=True) as scene:
            scene.handed_out = offered
            await part(scene)

    asyncio.run(run())


def body_of(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], body


def test_the_file_goes_to_whoever_has_the_key(identities, offered):
    async def part(scene):
        assert body_of(await answer_to(scene, GET)) == (b"HTTP/1.1 200 OK", CONTENT)
        head = await answer_to(scene, GET.replace(b"GET", b"HEAD"))
        assert f"Content-Length: {len(CONTENT)}".encode() in head
        assert head.endswith(b"\r\n\r\n")
        where = "http://{}:{}".format(*scene.listener.getsockname())

        def fetch():
            with urllib.request.urlopen(f"{where}/{KEY}/{NAME}", timeout=10) as answer:
                return answer.read()

        assert await asyncio.to_thread(fetch) == CONTENT

    on_a_scene(identities, offered, part)


def test_another_name_under_the_key_is_not_found(identities, offered):
    async def part(scene):
        for name in ("potluck-0.2.0-py3-none-any.whl", "", f"{NAME}/", f"../{NAME}", f"{NAME}?x=1", "%2e%2e/own"):
            asked = f"GET /{KEY}/{name} HTTP/1.1\r\n\r\n".encode()
            assert body_of(await answer_to(scene, asked)) == (b"HTTP/1.1 404 Not Found", b"")

    on_a_scene(identities, offered, part)


def test_without_the_key_there_is_no_answer(identities, offered):
    lines = [
        "GET / HTTP/1.1",
        f"GET /{NAME} HTTP/1.1",
        f"GET /{KEY[:-1]}/{NAME} HTTP/1.1",
        f"GET /{KEY}x/{NAME} HTTP/1.1",
        f"GET //{KEY}/{NAME} HTTP/1.1",
        f"GET /./{KEY}/{NAME} HTTP/1.1",
        f"GET /x/../{KEY}/{NAME} HTTP/1.1",
        f"GET http://rosa/{KEY}/{NAME} HTTP/1.1",
        f"GET x/{KEY}/{NAME} HTTP/1.1",
        f"GET  /{KEY}/{NAME} HTTP/1.1",
        f"GET /{KEY}/{NAME} HTTP/2.0",
        f"GET /{KEY}/{NAME}",
        f"GETT /{KEY}/{NAME} HTTP/1.1",
        f"POST /{KEY}/{NAME} HTTP/1.1",
        f"PUT /{KEY}/{NAME} HTTP/1.1",
        "HELP",
        "G\0\xff",
    ]

    async def part(scene):
        for line in lines:
            assert await answer_to(scene, f"{line}\r\n\r\n".encode("latin-1")) == b"", line
        assert await answer_to(scene, b"GET " + b"/" * 10_000) == b""
        assert await answer_to(scene, GET[:-2] + b"X: " + b"y" * 5000 + b"\r\n\r\n") == b""

    on_a_scene(identities, offered, part)


def test_a_gate_that_hands_nothing_out_gives_no_answer(identities):
    async def part(scene):
        assert await answer_to(scene, GET) == b""

    on_a_scene(identities, None, part)


def test_requests_in_a_row_get_one_answer(identities, offered):
    async def part(scene):
        assert body_of(await answer_to(scene, GET * 3)) == (b"HTTP/1.1 200 OK", CONTENT)

    on_a_scene(identities, offered, part)


def test_a_head_that_does_not_end_is_cut_off(identities, offered, monkeypatch):
    monkeypatch.setattr(entrances, "HANDSHAKE_S", 0.3)

    async def part(scene):
        began = time.monotonic()
        assert await answer_to(scene, GET[:-2]) == b""
        assert time.monotonic() - began < 5
        assert await scene.pass_through() < 1.0

    on_a_scene(identities, offered, part)


def test_who_does_not_read_is_cut_off(identities, offered, monkeypatch):
    monkeypatch.setattr(handing_out, "SEND_S", 0.5)
    large = b"x" * (64 << 20)
    Path(offered.file).write_bytes(large)

    async def part(scene):
        loop, connection = asyncio.get_running_loop(), await scene.dial()
        await loop.sock_sendall(connection, GET)
        await asyncio.sleep(1.5)
        received = 0
        with suppress(ConnectionResetError):
            while piece := await asyncio.wait_for(loop.sock_recv(connection, 1 << 20), 7):
                received += len(piece)
        connection.close()
        assert received < len(large)

    on_a_scene(identities, offered, part)


def test_a_crowd_of_slow_readers_keeps_neither_others_nor_members_out(identities, offered):
    Path(offered.file).write_bytes(b"x" * (16 << 20))

    async def part(scene):
        loop = asyncio.get_running_loop()
        slow = [await scene.dial() for _ in range(3 * handing_out.MOST_RECEIVERS)]
        for one in slow:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_sendall(one, GET)
        await asyncio.sleep(0.5)
        assert len(await answer_to(scene, GET)) > 16 << 20
        assert await scene.pass_through() < 1.0
        for one in slow:
            one.close()

    on_a_scene(identities, offered, part)
