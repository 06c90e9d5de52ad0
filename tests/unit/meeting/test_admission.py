"""Credentials come before bodies, a right one before all limits, and what is slow or broken ends alone."""

import asyncio
import contextlib
import json
import socket
import threading
import time

import pytest
import uvicorn

from potluck.core.errors import MeetingError
from potluck.meeting.access.proof import FailureLimit, prove_join
from potluck.meeting.client.client import HostClient, HostSilentError, NotAdmittedError
from potluck.meeting.host import behind_gate, credentials
from potluck.meeting.host.behind_gate import BehindGate, bind_service
from potluck.meeting.wire import PROOF_HEADER, JoinRequest
from tests.unit.meeting.test_doorway import facts
from tests.unit.meeting.test_service import service  # noqa: F401  a fixture

WRONG = {"Authorization": "Bearer rosa:wrong"}
MEMBERS_PATHS = ["/poll", "/report", "/runs", "/runs/one/files", "/bundles/x", "/visits", "/status", "/nonsense"]


@pytest.mark.parametrize("path", MEMBERS_PATHS)
@pytest.mark.parametrize("most", [1, 10**9], ids=["an address that has to wait", "an address that may try"])
def test_a_body_without_a_credential_is_never_read(service, path, most):  # noqa: F811
    _, app, door = service
    door.failures = FailureLimit(most=most)
    sent = []

    async def receive():
        pytest.fail("the body was asked for")

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"content-length", b"4000000"), (b"authorization", b"Bearer rosa:wrong")],
        "client": ("10.0.0.9", 1),
    }
    for _ in range(3):
        asyncio.run(app(scope, receive, send))
    statuses = [message["status"] for message in sent if message["type"] == "http.response.start"]
    assert statuses == ([401, 429, 429] if most == 1 else [401, 401, 401])
    assert all((b"connection", b"close") in message["headers"] for message in sent if "headers" in message)


def test_json_is_small_and_deliveries_have_their_own_bound():
    assert {path: credentials.most_bytes(path) >> 10 for path in ("/join", "/poll", "/runs", "/runs/one/stop")} == {
        "/join": 64,
        "/poll": 64,
        "/runs": 64,
        "/runs/one/stop": 64,
    }
    assert credentials.most_bytes("/runs/one/files") == credentials.most_bytes("/runs/one/checkpoints/x") == 4 << 20


def test_a_right_credential_is_not_locked_out_by_wrong_answers_from_its_address(service):  # noqa: F811
    client, _, door = service
    door.failures = FailureLimit(most=3)
    assert [client.get("/status", headers=WRONG).status_code for _ in range(5)] == [401, 401, 401, 429, 429]
    assert client.get("/status").status_code == 200
    assert client.get("/status", headers=WRONG).status_code == 429


def test_a_right_token_is_not_locked_out_by_wrong_answers_from_its_address(service):  # noqa: F811
    client, _, door = service
    door.failures = FailureLimit(most=3)
    for _ in range(5):
        client.get("/status", headers=WRONG)
    challenge = client.get("/version").json()["challenge"]
    request = JoinRequest(challenge=challenge, facts=facts("ivy"), clock_ahead_s=0.0, round_trip_s=0.0)
    body = request.model_dump_json().encode()
    proof = {PROOF_HEADER: prove_join(b"t" * 16, challenge, b"f" * 16, body)}
    assert client.post("/join", content=body, headers={PROOF_HEADER: "0" * 64}).status_code == 429
    assert client.post("/join", content=body, headers=proof).status_code == 200


@pytest.mark.parametrize(("status", "kind"), [(429, HostSilentError), (408, HostSilentError), (401, NotAdmittedError)])
def test_too_many_tries_means_later_and_not_go_away(status, kind):
    refused = HostClient("127.0.0.1", 1, b"")._refused(status, json.dumps({"error": "no", "fix": "wait"}).encode())
    assert type(refused) is kind
    assert isinstance(refused, MeetingError)


def test_a_trouble_of_the_hosts_own_is_a_sentence_and_said_once(service, monkeypatch):  # noqa: F811
    client, app, _ = service
    told = []
    coordinator = app.state.coordinator
    coordinator.troubles._tell = told.append
    monkeypatch.setattr(coordinator, "status", lambda: 1 / 0)
    for _ in range(3):
        answer = client.get("/status")
        assert (answer.status_code, set(answer.json())) == (500, {"error", "fix"})
    assert len(told) == 1
    assert "ZeroDivisionError" in told[0]
    assert client.get("/version").status_code == 200


@contextlib.contextmanager
def served(app, folder):
    """The service behind a gate's Unix socket, in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, http=BehindGate, ws="none", log_level="critical", lifespan="off"))
    listener = bind_service(folder / "service")
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield str(folder / "service")
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def talk(path, *pieces, pause_s=0.0):
    """All that is answered until the service hangs up, and how long that took."""
    began = time.monotonic()
    answer = b""
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(ConnectionError):
        connection.settimeout(20)
        connection.connect(path)
        connection.sendall(b"PROXY TCP4 10.0.0.9 0.0.0.0 5 0\r\n")
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause_s)
        while received := connection.recv(1 << 16):
            answer += received
    return answer, time.monotonic() - began


@pytest.mark.timeout(60)
def test_headers_and_bodies_have_to_come_in_time(service, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(behind_gate, "HEADERS_S", 0.5)
    monkeypatch.setattr(credentials, "STRANGERS_BODY_S", 0.5)
    version = b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n"
    with served(service[1], tmp_path) as path:
        answer, seconds = talk(path, *(b"GET /version HTTP/1.1\r\n", *[b"x: y\r\n"] * 50), pause_s=0.1)
        assert (answer, seconds < 5) == (b"", True)  # a header every 0.1 s, for ever
        answer, seconds = talk(path, version, b"GET /ver", pause_s=0.1)
        assert (answer[:12], answer.count(b"HTTP/1.1"), seconds < 5) == (b"HTTP/1.1 200", 1, True)
        answer, seconds = talk(path, b"POST /join HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n{")
        assert (answer[:12], seconds < 5) == (b"HTTP/1.1 408", True)
        answer, seconds = talk(path, b"POST /report HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n{")
        assert (answer[:12], seconds < 5) == (b"HTTP/1.1 401", True)
        answer, _ = talk(path, version.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.timeout(60)
def test_garbage_on_a_connection_ends_it_without_a_traceback(service, tmp_path, caplog):  # noqa: F811
    version = b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n"
    with served(service[1], tmp_path) as path:
        for garbage in (b"\0\r\n\r\n", version + b"\0\r\n\r\n", version * 3 + b"nonsense\r\n\r\n", b"\x16\x03\x01"):
            talk(path, garbage + b"\r\n" * 100)
        assert talk(path, version[:-2] + b"connection: close\r\n\r\n")[0].startswith(b"HTTP/1.1 200")
    assert [record for record in caplog.records if record.exc_info] == []
