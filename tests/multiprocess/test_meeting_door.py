"""A real host on loopback: who is let in, who is not and why, and what a restart keeps."""

import signal
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from potluck.core.errors import MeetingError
from potluck.doctor.checks.catalogue import examine_all
from potluck.gates.identity import load_or_make
from potluck.gates.process import GateProcess
from potluck.machine.snapshot import take_facts
from potluck.meeting.access.gating import as_settings
from potluck.meeting.access.introduction import introduce
from potluck.meeting.access.invitation import Invitation, read_invitation
from potluck.meeting.agent.answering import Visited
from potluck.meeting.client import client as clients
from potluck.meeting.client.asking import examine_joined
from potluck.meeting.client.client import HostClient, NotAdmittedError, knock, measure_clock
from potluck.meeting.client.joining import join as join_host
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.transfer.bundle import pack
from potluck.meeting.wire import PROOF_HEADER, JoinRequest, Orders, PollRequest, Reach, Report
from tests.multiprocess.command import Command

HERE = "127.0.0.1"
SEEN = take_facts(with_torch=False)


def free_port():
    with socket.create_server((HERE, 0)) as server:
        return server.getsockname()[1]


class RealHost:
    """`potluck host` in a process of its own; it does not train unless other options say so."""

    def __init__(self, port, *options):
        self.port = port
        self.folder = Path.cwd()
        self.trains = bool(options) and "--not-here" not in options
        self._command = Command(
            *("host", "--no-mdns", "--address", HERE, "--port", port, "--name", "rosa"), *(options or ["--not-here"])
        )
        try:
            self.invitation = self._wait_for_line()
        except BaseException:
            self._command.signal(signal.SIGKILL)  # else the end of the tests would wait for it
            self._command.finish(10)
            raise

    def _wait_for_line(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for line in self.output().splitlines():
                if "potluck join p1-" in line:
                    invitation = read_invitation(line.split()[2])
                    with HostClient(HERE, self.port, invitation.fingerprint) as client:
                        client.ask("GET", "/version")  # the socket listens before the line is printed
                    return invitation
            time.sleep(0.05)
        raise AssertionError(self.output())

    def output(self):
        return self._command.output()

    def wait_for(self, words):
        self._command.wait_for(words)

    def is_running(self):
        return self._command.is_running()

    def end(self, number=signal.SIGINT):
        self._command.signal(number)
        return self._command.finish(30)


@pytest.fixture
def host(workplace):
    held = RealHost(free_port())
    yield held
    held.end()


def other(invitation, **changes):
    values = {name: getattr(invitation, name) for name in ("address", "port", "token", "fingerprint")}
    return Invitation(**{**values, **changes})


def join(invitation, machine, home, seen=SEEN):
    return join_host(invitation, machine, home, seen, identity=load_or_make(home.identity_dir), gate_port=free_port())


def request_for(client, machine="lily", machine_id="lily-id", ahead_s=None, **versions):
    version, measured_s, round_trip_s = measure_clock(client)
    facts = introduce(
        SEEN,
        machine=machine,
        machine_id=machine_id,
        address=HERE,
        network="127.0.0.0/8",
        identity=load_or_make(Path("an-identity")),
        gate_port=29500,
    )
    facts = facts.model_copy(update={"versions": {**facts.versions, **versions}})
    return JoinRequest(
        challenge=version.challenge,
        facts=facts,
        clock_ahead_s=measured_s if ahead_s is None else ahead_s,
        round_trip_s=round_trip_s,
    )


def test_a_machine_joins_and_a_restarted_host_still_knows_it(host, workplace):
    membership = join(host.invitation, "lily", Home(workplace / "lily"))
    assert membership.host == "rosa"
    assert Home(workplace / "lily").membership() == membership
    assert (workplace / "lily" / "joined.json").stat().st_mode & 0o077 == 0
    for file in (workplace / "home" / "host").glob("*"):
        assert file.stat().st_mode & 0o077 == 0, file
    with HostClient.of(membership) as client:
        client.ask("POST", "/poll", PollRequest())
        before = {machine["machine"] for machine in client.ask("GET", "/status")["machines"]}
    host.end(signal.SIGKILL)
    again = RealHost(host.port)
    try:
        assert again.invitation == host.invitation
        with HostClient.of(membership) as client:
            after = {machine["machine"] for machine in client.ask("GET", "/status")["machines"]}
        assert before == after == {"rosa", "lily"}
    finally:
        host._command = again._command


def test_who_is_refused_and_why(host, workplace, monkeypatch):
    invitation, home = host.invitation, Home(workplace / "lily")

    with pytest.raises(MeetingError, match="token is not this host's"):
        join(other(invitation, token=bytes(16)), "lily", home)

    sent = []
    with monkeypatch.context() as patched:
        patched.setattr(ssl.SSLSocket, "sendall", lambda _, data, *more: sent.append(data))
        with pytest.raises(MeetingError, match="another certificate"):
            HostClient(HERE, host.port, bytes(16)).ask("GET", "/version")
    assert not sent  # not a byte of a request before the certificate is right
    with pytest.raises(MeetingError, match="another certificate"):
        join(other(invitation, fingerprint=bytes(16)), "lily", home)

    with HostClient(HERE, host.port, invitation.fingerprint) as client:
        # A request that somebody has recorded, sent once more.
        asked = request_for(client)
        body = asked.model_dump_json().encode()
        proof = clients.prove_join(invitation.token, asked.challenge, invitation.fingerprint, body)
        client.send("POST", "/join", body, {PROOF_HEADER: proof})
        with pytest.raises(NotAdmittedError, match="made before"):
            client.send("POST", "/join", body, {PROOF_HEADER: proof})
        with pytest.raises(NotAdmittedError, match="token"):  # the same proof over other words
            client.send("POST", "/join", body.replace(b"lily", b"iris"), {PROOF_HEADER: proof})

        with pytest.raises(MeetingError, match=r"another machine .* has joined as lily"):
            knock(client, invitation, request_for(client, machine_id="other"))
        with pytest.raises(MeetingError, match=r"has torch 2\.1\.0"):
            knock(client, invitation, request_for(client, "fern", torch="2.1.0"))
        with pytest.raises(MeetingError, match="clock is 60 s behind"):
            knock(client, invitation, request_for(client, "fern", ahead_s=-60.0))

        # Another certificate in the middle cannot use a good proof: it is bound to the right one.
        fake = other(invitation, fingerprint=bytes(16))
        with pytest.raises(NotAdmittedError, match="token"):
            knock(client, fake, request_for(client, "fern"))

        for _ in range(10):
            with pytest.raises(MeetingError):
                knock(client, other(invitation, token=bytes(16)), request_for(client, "fern"))
        with pytest.raises(MeetingError, match="too many wrong answers"):
            knock(client, other(invitation, token=bytes(16)), request_for(client, "fern"))
        knock(client, invitation, request_for(client))  # whoever has the token need not wait for others' mistakes

    # The token was printed in the lines that are there to be pasted, to join and to install with uv or pip first.
    shown = host.output()
    secret = str(invitation).split("-", 3)[3]
    assert shown.count(secret) == shown.count(f"potluck join {invitation}") == 3
    assert invitation.token.hex() not in shown
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes()
        except OSError:
            continue
        assert secret.encode() not in command


def test_a_machines_clock_is_measured_against_the_hosts(host, monkeypatch):
    with HostClient(HERE, host.port, host.invitation.fingerprint) as client:
        assert abs(measure_clock(client)[1]) < 1.0
        real = time.time
        monkeypatch.setattr(clients.time, "time", lambda: real() + 60.0)
        assert abs(measure_clock(client)[1] - 60.0) < 1.0


def test_bundles_come_from_members_only_and_must_be_what_they_say(host, workplace):
    script = workplace / "code" / "train.py"
    script.parent.mkdir()
    script.write_text("print('hello')\n")
    bundle = pack(script.parent, script)
    with HostClient(HERE, host.port, host.invitation.fingerprint) as stranger, pytest.raises(NotAdmittedError):
        stranger.send("PUT", f"/bundles/{bundle.hash}", bundle.data)
    membership = join(host.invitation, "lily", Home(workplace / "lily"))
    with HostClient.of(membership) as member:
        member.send("PUT", f"/bundles/{bundle.hash}", bundle.data)
        assert member.send("GET", f"/bundles/{bundle.hash}") == bundle.data
        with pytest.raises(MeetingError, match="not what its hash says"):
            member.send("PUT", f"/bundles/{'0' * 64}", bundle.data)
        with pytest.raises(MeetingError, match="leads out of its folder"):
            member.send("PUT", f"/bundles/{'0' * 64}", _archive_with("../evil.py"))


def _archive_with(name):
    import io
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        header = tarfile.TarInfo(name)
        header.size = 3
        archive.addfile(header, io.BytesIO(b"bad"))
    return packed.getvalue()


def test_a_credential_of_one_host_is_nothing_to_another(host, workplace):
    membership = join(host.invitation, "lily", Home(workplace / "lily"))
    stranger = HostMembership(**{**membership.model_dump(), "credential": "x" * 43})
    with HostClient.of(stranger) as client, pytest.raises(NotAdmittedError, match="does not know this machine"):
        client.ask("GET", "/status")


class Attending:
    """A joined machine's part of a visit, as its agent does it, without workers: its gate, and its answers."""

    def __init__(self, membership, home):
        self.membership = membership
        self._listener = socket.create_server((HERE, 0))
        self._gate = GateProcess(home.identity_dir, [self._listener], print)
        self._gate.start()
        self._visited = Visited(membership, str(self._gate.socket))
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self):
        known = None
        with HostClient.of(self.membership) as client:
            client.ask("POST", "/report", Report(reach=Reach(addresses=[HERE], port=self._gate.port)))
            while not self._done.is_set():
                asked = PollRequest(known=known.digest if known else "")
                orders = client.ask_for(Orders, "POST", "/poll", asked).complete(known)
                known = orders
                self._gate.update(as_settings(orders.gate, self.membership.machine))
                self._visited.follow(orders.visits)
        self._visited.close()

    def close(self):
        self._done.set()
        with HostClient.of(self.membership) as client:
            client.ask("POST", "/visits")  # wakes everybody who waits for orders
        self._thread.join(10)
        self._gate.close()
        self._listener.close()


def test_the_doctor_sees_every_joined_machine_that_is_here(host, workplace):
    told = []
    homes = [Home(workplace / name) for name in ("lily", "fern")]
    memberships = [join(host.invitation, home.folder.name, home) for home in homes]
    lily, fern = [Attending(*both) for both in zip(memberships, homes, strict=True)]
    try:
        seen = examine_joined(lily.membership, with_torch=False, tell=told.append)
        assert [facts.machine for facts in seen.machines] == ["lily", "fern"]
        assert [(link.source, link.target, link.is_open) for link in seen.links] == [
            ("lily", "fern", True),
            ("fern", "lily", True),
        ]
        assert not told
    finally:
        lily.close()
        fern.close()
    with HostClient.of(fern.membership) as client:
        client.ask("POST", "/report", Report(is_leaving=True))
        with pytest.raises(MeetingError, match="does not understand"):
            client.send("POST", "/visits/x/questions", b'{"machine": "lily", "ask": "{}"}')
    attending = Attending(lily.membership, homes[0])
    try:
        seen = examine_joined(lily.membership, ("lily", "rosa"), with_torch=False, tell=told.append)
    finally:
        attending.close()
    assert [facts.machine for facts in seen.machines] == ["lily"]
    missing = examine_all(seen, only=["missing-machines"])
    assert [finding.machine for finding in missing if finding.status == "fail"] == ["rosa"]
    assert "lily is the only machine here" in told[0]
