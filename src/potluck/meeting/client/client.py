"""HTTPS client of a host, pinned to the certificate whose fingerprint is in the invitation."""

import hmac
import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import IO, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from potluck.core.errors import MeetingError
from potluck.doctor.probing.small_packets import use_small_packets
from potluck.gates.sockets import watch_over
from potluck.meeting.access.invitation import Invitation, fingerprint_of
from potluck.meeting.access.proof import prove_back, prove_join
from potluck.meeting.home import HostMembership
from potluck.meeting.wire import PARITY_WANTED, PROOF_HEADER, JoinAnswer, JoinRequest, Problem, VersionAnswer

Answer = TypeVar("Answer", bound=BaseModel)
Place: TypeAlias = Callable[[str], AbstractContextManager[IO[bytes]]]
TIMEOUT_S = 10.0
_PART_BYTES = 1 << 20
_FILE_NAME = re.compile(r'filename="([^"]+)"')


class HostSilentError(MeetingError):
    """The host does not answer now; it may later."""


class HostInTroubleError(HostSilentError):
    """The host answers that it cannot handle the request now: its disk is full, or it is about to end."""


class NotAdmittedError(MeetingError):
    """The host does not know this machine, or not any more."""


class AskedForParityError(MeetingError):
    """The host has other versions, and wants this machine's parity reading before it decides."""


class _PinnedConnection(http.client.HTTPSConnection):
    """Checks the certificate's fingerprint before a request is sent; host names and authorities prove nothing here."""

    def __init__(
        self, address: str, port: int, fingerprint: bytes, timeout_s: float, *, with_small_packets: bool = False
    ) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        super().__init__(address, port, timeout=timeout_s, context=context)
        self._fingerprint = fingerprint
        self._tls = context
        self._timeout_s = timeout_s
        self._with_small_packets = with_small_packets

    def connect(self) -> None:
        raw = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if self._with_small_packets:
                use_small_packets(raw)
            # Polls get priority over checkpoints. A connection that the host lost while a cable was out fails soon, and
            # is opened again.
            watch_over(raw, "control" if self._with_small_packets else "bulk")
            raw.settimeout(self._timeout_s)
            raw.connect((self.host, self.port))
            self.sock: ssl.SSLSocket = self._tls.wrap_socket(raw)
        except BaseException:
            raw.close()
            raise
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        der = self.sock.getpeercert(binary_form=True) or b""
        if not hmac.compare_digest(fingerprint_of(der), self._fingerprint):
            self.close()
            raise MeetingError(
                f"{self.host}:{self.port} answers with another certificate than the line names: it is not that host",
                fix="paste the line that potluck host prints now; if it is the same, somebody is in between",
            )


class HostClient:
    """One connection to a host, kept open and opened again as needed. Not thread-safe."""

    def __init__(
        self,
        address: str,
        port: int,
        fingerprint: bytes,
        *,
        credential: str = "",
        timeout_s: float = TIMEOUT_S,
        with_small_packets: bool = False,
    ) -> None:
        self.address = address
        self.port = port
        self._fingerprint = fingerprint
        self._authorization = f"Bearer {credential}"
        self._timeout_s = timeout_s
        self._with_small_packets = with_small_packets
        self._connection: _PinnedConnection | None = None
        self._headers: dict[str, str] = {}

    @classmethod
    def of(
        cls, membership: HostMembership, timeout_s: float = TIMEOUT_S, *, with_small_packets: bool = False
    ) -> "HostClient":
        """A client with a joined machine's credential. Small packets get through where the network loses large ones."""
        return cls(
            membership.address,
            membership.port,
            bytes.fromhex(membership.fingerprint),
            credential=f"{membership.machine}:{membership.credential}",
            timeout_s=timeout_s,
            with_small_packets=with_small_packets,
        )

    def __enter__(self) -> "HostClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, method: str, path: str, body: BaseModel | None = None) -> Any:
        """Send a request; returns the host's answer as plain data."""
        return json.loads(self.send(method, path, b"" if body is None else body.model_dump_json().encode()))

    def ask_for(self, kind: type[Answer], method: str, path: str, body: BaseModel | None = None) -> Answer:
        """Send a request; returns the host's answer as a checked type."""
        try:
            return kind.model_validate(self.ask(method, path, body))
        except ValidationError:
            raise MeetingError(
                f"the host at {self.address} answers in words that this version does not know",
                fix="install the same potluck on both machines",
            ) from None

    def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
        """One request; raises MeetingError for a refusal and HostSilentError when no answer comes."""
        sent = {"Authorization": self._authorization, "Content-Type": "application/json", **(headers or {})}
        is_reused = self._connection is not None
        try:
            status, content = self._exchange(method, path, body, sent)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            if not is_reused or isinstance(error, TimeoutError):
                raise self._silent(error) from error
            # The host closes idle connections: try once more on a new connection.
            try:
                status, content = self._exchange(method, path, body, sent)
            except (http.client.HTTPException, OSError) as again:
                self.close()
                raise self._silent(again) from again
        if status == 200:
            return content
        raise self._refused(status, content)

    def fetch_into(self, path: str, place: Place, is_over: Callable[[], bool] = bool) -> str:
        """Get a file that may be larger than memory, until `is_over`; returns the name that the host gives it.

        `place` opens the file of that name, and keeps it unless it was left by an exception.
        """
        self.close()
        parts = self._parts(path)
        try:
            part = next(parts, b"")
            found = _FILE_NAME.search(self._headers.get("content-disposition", ""))
            name = "" if found is None else found[1]
            with place(name) as file:
                while part and not is_over():
                    file.write(part)
                    part = next(parts, b"")
                if str(file.tell()) != self._headers.get("content-length"):
                    raise self._silent(EOFError(f"{name} has come in part only"))
        finally:
            parts.close()
            self.close()
        return name

    def _parts(self, path: str) -> Generator[bytes, None, None]:
        try:
            response = self._request("GET", path, b"", {"Authorization": self._authorization})
            if response.status != 200:
                raise self._refused(response.status, response.read())
            while part := response.read(_PART_BYTES):
                yield part
        except (http.client.HTTPException, OSError) as error:
            raise self._silent(error) from error

    def _exchange(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        response = self._request(method, path, body, headers)
        return response.status, response.read()

    def _request(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = _PinnedConnection(
                self.address,
                self.port,
                self._fingerprint,
                self._timeout_s,
                with_small_packets=self._with_small_packets,
            )
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        self._headers = {name.lower(): value for name, value in response.getheaders()}
        return response

    def _silent(self, error: Exception) -> HostSilentError:
        reason = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
        return HostSilentError(
            f"the host at {self.address}:{self.port} does not answer: {reason or type(error).__name__}",
            fix="check that potluck host runs there and that its firewall lets this machine in; "
            "to train on this machine only: potluck train --solo",
        )

    def _refused(self, status: int, content: bytes) -> MeetingError:
        try:
            problem = Problem.model_validate_json(content)
        except ValidationError:
            problem = Problem(error=f"the host answers with status {status}", fix="see what potluck host prints")
        if status in (503, 507):
            return HostInTroubleError(problem.error, fix=problem.fix)
        if status >= 500 or status in (408, 429):  # try later: the request itself may be right
            return HostSilentError(problem.error, fix=problem.fix)
        kind = {401: NotAdmittedError, PARITY_WANTED: AskedForParityError}.get(status, MeetingError)
        return kind(problem.error, fix=problem.fix)


def measure_clock(client: HostClient) -> tuple[VersionAnswer, float, float]:
    """The host's version, this clock minus the host's, and the round trip, from the fastest of three requests."""
    tries = []
    for _ in range(3):
        asked = time.time()
        answer = client.ask_for(VersionAnswer, "GET", "/version")
        round_trip_s = max(0.0, time.time() - asked)
        tries.append((round_trip_s, (asked + round_trip_s / 2) - answer.time, answer))
    round_trip_s, ahead_s, answer = min(tries, key=lambda one: one[0])
    return answer, ahead_s, round_trip_s


def knock(client: HostClient, invitation: Invitation, request: JoinRequest) -> JoinAnswer:
    """Send a join request with a proof over exactly its bytes, and check the host's proof in the answer."""
    body = request.model_dump_json().encode()
    proof = prove_join(invitation.token, request.challenge, invitation.fingerprint, body)
    answer = JoinAnswer.model_validate_json(client.send("POST", "/join", body, {PROOF_HEADER: proof}))
    expected = prove_back(invitation.token, request.challenge, invitation.fingerprint)
    if not hmac.compare_digest(answer.proof, expected):
        raise MeetingError(
            f"{client.address}:{client.port} does not know the token: it is not the host that gave it out",
            fix="paste the whole line that potluck host prints",
        )
    return answer
