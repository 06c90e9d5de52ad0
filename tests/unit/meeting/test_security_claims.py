"""What docs/security.md promises and no other test holds: pinning, proofs in both directions, where secrets are."""

import asyncio
import contextlib
import io
import os
import socket
import ssl
import sys
import threading
from pathlib import Path

import pytest

from potluck.cli.joining import find_invitation
from potluck.core.errors import MeetingError
from potluck.gates import entrance, handing_out, secure, streams
from potluck.gates.identity import Identity, digest_of, load_or_make
from potluck.gates.messages import ClusterMachine, Settings
from potluck.gates.ports import ExposedPorts
from potluck.gates.secure import SecureEnd
from potluck.gates.sockets import is_own_users, prepare
from potluck.gates.streams import Streams
from potluck.gates.workers import WorkerSocket
from potluck.meeting import questions
from potluck.meeting.access.invitation import FINGERPRINT_BYTES, TOKEN_BYTES, Invitation, fingerprint_of
from potluck.meeting.access.proof import FailureLimit, prove_join
from potluck.meeting.access.token import dashboard_password, load_or_make_token, metrics_key, write_metrics_key
from potluck.meeting.client.client import HostClient, knock
from potluck.meeting.home import Home
from potluck.meeting.host import behind_gate, credentials, meeting_point, roster
from potluck.meeting.host.admission import Door
from potluck.meeting.host.behind_gate import bind_service
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.transfer import bundle, shipping, states
from potluck.meeting.wire import JoinAnswer, JoinRequest
from tests.unit.meeting.test_doorway import facts


@contextlib.contextmanager
def tls_server(identity: Identity):
    """A server with that certificate; what its only visitor sends after the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate_file, identity.key_file)
    received = []

    def serve():
        with contextlib.suppress(OSError):
            raw, _ = listener.accept()
            with raw, context.wrap_socket(raw, server_side=True) as connection:
                while piece := connection.recv(4096):
                    received.append(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1], received
        finally:
            thread.join(10)


@pytest.mark.timeout(30)
def test_nothing_is_sent_to_a_host_with_another_certificate(tmp_path):
    other = fingerprint_of(ssl.PEM_cert_to_DER_cert(load_or_make(tmp_path / "right").certificate))
    with tls_server(load_or_make(tmp_path / "wrong")) as (port, received):
        client = HostClient("127.0.0.1", port, other, credential="lily:secret", timeout_s=5)
        with client, pytest.raises(MeetingError, match="another certificate"):
            client.send("GET", "/version")
    assert received == []


def test_the_line_holds_128_bits_of_token_and_128_bits_of_sha_256(tmp_path):
    der = ssl.PEM_cert_to_DER_cert(load_or_make(tmp_path).certificate)
    assert (TOKEN_BYTES * 8, FINGERPRINT_BYTES * 8) == (128, 128)
    assert fingerprint_of(der) == digest_of(der)[:16]
    assert len(load_or_make_token(tmp_path / "host")) == TOKEN_BYTES


class _Impostor(HostClient):
    """A host that answers everybody and does not know the token."""

    def send(self, method, path, body=b"", headers=None):
        answer = JoinAnswer(host="rosa", credential="x", proof="0" * 64)
        return answer.model_dump_json().encode()


def test_a_host_that_does_not_know_the_token_is_not_obeyed():
    invitation = Invitation(address="127.0.0.1", port=1, token=b"t" * 16, fingerprint=b"f" * 16)
    request = JoinRequest(challenge="c", facts=facts("lily"), clock_ahead_s=0.0, round_trip_s=0.0)
    with pytest.raises(MeetingError, match="does not know the token"):
        knock(_Impostor("127.0.0.1", 1, b""), invitation, request)


def test_what_a_machine_tells_of_itself_holds_its_certificate_and_not_its_key(tmp_path):
    identity = load_or_make(tmp_path)
    told = facts("lily", certificate=identity.certificate).model_dump_json()
    key = "".join(identity.key_file.read_text().splitlines()[1:-1])
    assert "BEGIN CERTIFICATE" in told
    assert "PRIVATE KEY" not in told
    assert key[:40] not in told


def test_the_proof_covers_the_certificate_of_the_machine_that_joins(tmp_path):
    known = MachineRoster(tmp_path / "roster.json")
    door = Door(token=b"t" * 16, fingerprint=b"f" * 16, facts=facts("rosa", address="10.0.0.1"), roster=known)
    request = JoinRequest(challenge=door.version().challenge, facts=facts("ivy"), clock_ahead_s=0.0, round_trip_s=0.0)
    proof = prove_join(b"t" * 16, request.challenge, b"f" * 16, request.model_dump_json().encode())
    forged = request.model_copy(update={"facts": facts("fern").model_copy(update={"machine": "ivy"})})
    with pytest.raises(MeetingError, match="token is not this host's"):
        asyncio.run(door.join(forged.model_dump_json().encode(), proof, "10.0.0.9"))
    asyncio.run(door.join(request.model_dump_json().encode(), proof, "10.0.0.9"))
    assert known.machines["ivy"].facts.certificate == request.facts.certificate


def test_token_and_credential_are_in_no_file_but_their_own(tmp_path):
    token = load_or_make_token(tmp_path)
    write_metrics_key(tmp_path, token)
    credential = MachineRoster(tmp_path / "roster.json").enrol(facts("lily"))
    holding = [file.name for file in tmp_path.iterdir() if token.hex() in file.read_text()]
    assert holding == ["token"]
    assert [file.name for file in tmp_path.iterdir() if credential in file.read_text()] == []
    assert all(file.stat().st_mode & 0o077 == 0 for file in (tmp_path, *tmp_path.iterdir()))
    assert token.hex() not in metrics_key(token) + dashboard_password(token)


@pytest.mark.timeout(30)
@pytest.mark.skipif(os.getuid() != 0, reason="only root can dial as another user")
@pytest.mark.parametrize(("user", "is_own"), [(0, True), (65534, False)])
def test_connections_of_other_users_of_this_computer_are_told_apart(user, is_own):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wait, end = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(end)
                os.setuid(user)
                dialled = socket.socket()
                dialled.connect(listener.getsockname())
                os.read(wait, 1)
            finally:
                os._exit(0)
        connection, _ = listener.accept()
        with connection:
            assert is_own_users(connection) is is_own
        os.close(wait)
        os.close(end)
        os.waitpid(child, 0)


@pytest.mark.timeout(60)
def test_the_service_takes_so_many_connections_and_drops_who_asks_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "_MOST_VISITORS", 2)
    monkeypatch.setattr(streams, "_VISITORS_A_MEMBER", 1)
    identity = load_or_make(tmp_path / "identity")

    async def run():
        service = bind_service(tmp_path / "service")  # connections wait in its queue: nobody asks anything
        members = tuple(
            ClusterMachine(machine=name, number=1, certificate="", addresses=(), port=29500)
            for name in ("rosa", "lily")
        )
        settings = Settings(machine="rosa", host="rosa", block="", members=members, service=str(tmp_path / "service"))
        carried = Streams(lambda: settings, ExposedPorts(), lambda _: "bulk", None)
        visits = []

        async def visit():
            """A stranger's HTTPS connection, as the entrance hands it on."""
            near, far = socket.socket(), None
            with socket.create_server(("127.0.0.1", 0)) as listener:
                near.connect(listener.getsockname())
                far, _ = listener.accept()
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            ours = SecureEnd(prepare(near), context, is_server=False)
            theirs = SecureEnd(prepare(far), secure.anybody(identity), is_server=True)
            await asyncio.gather(ours.shake_hands(), theirs.shake_hands())
            visits.append(asyncio.ensure_future(carried.serve_http(theirs)))
            await asyncio.sleep(0.05)
            return ours

        held = [await visit() for _ in range(7)]
        assert len(carried._visitors) == 4
        monkeypatch.setattr(streams, "HANDSHAKE_S", 0.1)
        late = await visit()
        await asyncio.sleep(0.5)
        assert len(carried._visitors) == 3  # the last one asked nothing for as long as a handshake may take
        carried.close()
        for task in visits:
            task.cancel()
        await asyncio.gather(*visits, return_exceptions=True)
        for end in (*held, late):
            end.close()
        service.close()

    asyncio.run(run())


def test_keys_are_p_256_and_connections_tls_1_3(tmp_path):
    from cryptography import x509

    identity = load_or_make(tmp_path)
    certificate = x509.load_pem_x509_certificate(identity.certificate.encode())
    assert certificate.public_key().curve.name == "secp256r1"
    contexts = (
        secure.anybody(identity),
        secure.members_only(identity, [identity.certificate]),
        secure.towards(identity, identity.certificate),
    )
    assert {context.minimum_version for context in contexts} == {ssl.TLSVersion.TLSv1_3}


def test_the_numbers_on_the_page_are_those_of_the_code():
    assert entrance.HANDSHAKE_S == behind_gate.HEADERS_S == credentials.STRANGERS_BODY_S == 5
    assert (entrance._MOST_UNFINISHED, streams.IDLE_S, meeting_point.KEEP_ALIVE_S) == (128, 320, 30)
    assert (handing_out.MOST_HEAD_BYTES, handing_out.MOST_RECEIVERS, handing_out.SEND_S) == (4096, 16, 60)
    assert streams.IDLE_S > questions.MEASURE_S, "a machine that measures must not lose the connection"
    assert (streams._MOST_VISITORS, streams._VISITORS_A_MEMBER) == (256, 4)
    assert (credentials.MOST_JSON_BYTES, credentials.MOST_TOLD_BYTES) == (64 << 10, 2 << 20)
    assert (shipping.MAX_DELIVERY_BYTES, bundle.DEFAULT_LIMIT_BYTES) == (4 << 20, 100 << 20)
    assert (shipping.MOST_FILES, shipping.MOST_FILE_BYTES) == ({"events": 256, "logs": 4096, "traces": 256}, 16 << 30)
    assert (states.MOST_BYTES, states._KEEP) == (64 << 30, 2)
    assert (FailureLimit()._most, FailureLimit()._within_s) == (10, 60)
    assert (roster.LEAVE_S, roster.AWAY_AFTER_S) == (80, 12)
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    for words in ("5 s for the whole handshake", "At most 128 handshakes", "takes 256 connections", "for 80 s at most"):
        assert words in page


def test_a_line_may_come_from_stdin(tmp_path, monkeypatch):
    invitation = Invitation(address="10.0.0.1", port=29500, token=b"t" * 16, fingerprint=b"f" * 16)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{invitation}\n"))
    assert find_invitation("-", Home(tmp_path), lambda _: None) == invitation


@pytest.mark.timeout(30)
def test_sockets_for_workers_and_the_service_are_their_owners(tmp_path):
    listener = bind_service(tmp_path / "service")
    assert (tmp_path / "service").stat().st_mode & 0o077 == 0
    listener.close()

    async def listen():
        listening = asyncio.ensure_future(WorkerSocket(None, tmp_path / "gate").listen())
        while not (tmp_path / "gate").exists() or (tmp_path / "gate").stat().st_mode & 0o077:
            await asyncio.sleep(0.01)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)

    asyncio.run(listen())
