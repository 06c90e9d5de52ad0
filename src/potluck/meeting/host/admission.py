"""Admission of a machine: it proves the token, passes the checks, and gets a credential of its own."""

import hmac
import time
from collections.abc import Awaitable, Callable

import msgspec
from pydantic import ValidationError

from potluck.core.errors import MeetingError
from potluck.core.version import __version__
from potluck.core.version_rule import other_potluck
from potluck.machine.parity import ParityReading, read_parity
from potluck.meeting.access.proof import Challenges, FailureLimit, prove_back, prove_join
from potluck.meeting.access.token import metrics_key
from potluck.meeting.host import admission_checks
from potluck.meeting.host.own_parity import OwnParity
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.wire import Introduction, JoinAnswer, JoinRequest, VersionAnswer


class NotProvenError(MeetingError):
    """The request has no valid credential or proof."""


class TooManyTriesError(MeetingError):
    """Too many wrong credentials or proofs from one address."""


class ParityWantedError(MeetingError):
    """The machine's versions differ a little from the host's: it is to join again with a parity reading."""


class Door:
    """Admits machines: checks the proof of the token first, then everything else about the machine."""

    def __init__(
        self,
        *,
        token: bytes,
        fingerprint: bytes,
        facts: Introduction,
        roster: MachineRoster,
        install: str = "",
        clock: Callable[[], float] = time.time,
        read_parity: Callable[[], ParityReading] = read_parity,
    ) -> None:
        self._token = token
        self._fingerprint = fingerprint
        self._facts = facts
        self._roster = roster
        self._install = install
        self._clock = clock
        self._own_parity = OwnParity(read_parity, facts.machine)
        self._challenges = Challenges()
        self.failures = FailureLimit()

    def version(self) -> VersionAnswer:
        return VersionAnswer(
            potluck=__version__, host=self._facts.machine, time=self._clock(), challenge=self._challenges.new()
        )

    def failed(self, address: str, error: NotProvenError) -> MeetingError:
        """The error to answer a wrong credential or proof with: `error`, or TooManyTriesError after too many.

        Valid credentials and proofs never get here: others at the same address cannot lock a machine out.
        """
        wait_s = self.failures.wait_s(address)
        if wait_s > 0:
            return TooManyTriesError(
                f"too many wrong answers from {address}", fix=f"wait {wait_s:.0f} s, then try again"
            )
        self.failures.failed(address)
        return error

    def may_read_metrics(self, key: str) -> bool:
        """Whether `key` is the metrics key, which is good for nothing else."""
        return hmac.compare_digest(key.encode(errors="replace"), metrics_key(self._token).encode())

    async def join(
        self, body: bytes, proof: str, peer: str, confirmed: Callable[[], Awaitable[None]] | None = None
    ) -> JoinAnswer:
        """Admit a machine; raises if it fails the proof or a check.

        `confirmed` waits until this host may change anything, or raises: its words are for who has proven the token.
        """
        request = self._proven(body, proof, peer)
        self._check(request)
        await self._check_parity(request)
        if confirmed is not None:
            await confirmed()
        self._check(request)  # once more: while the host computed or waited, another machine may have joined
        return JoinAnswer(
            host=self._facts.machine,
            credential=self._roster.enrol(request.facts),
            proof=prove_back(self._token, request.challenge, self._fingerprint),
        )

    async def _check_parity(self, request: JoinRequest) -> None:
        """Compare the machine's parity reading with the host's, where their versions differ."""
        theirs = request.facts
        to_check = admission_checks.check_versions(theirs, self._facts, install=self._install)
        if not to_check:
            return
        self._own_parity.begin()
        if not request.parity:
            raise ParityWantedError(
                admission_checks.parity_wanted(theirs, self._facts, to_check), fix="join with a parity reading"
            )
        own = await self._own_parity.get()
        reading = msgspec.json.decode(request.parity, type=ParityReading)
        admission_checks.check_parity(theirs, self._facts, to_check, reading=reading, own=own)

    def _check(self, request: JoinRequest) -> None:
        theirs = request.facts
        admission_checks.check_versions(theirs, self._facts, install=self._install)
        admission_checks.check_clock(
            theirs, self._facts, ahead_s=request.clock_ahead_s, round_trip_s=request.round_trip_s
        )
        admission_checks.check_certificate(theirs, self._clock())
        holder = self._roster.machines.get(theirs.machine)
        admission_checks.check_name(theirs, holder.facts if holder else None)
        admission_checks.check_identity(theirs, [known.facts for known in self._roster.machines.values()])

    def _proven(self, body: bytes, proof: str, peer: str) -> JoinRequest:
        try:
            request = JoinRequest.model_validate_json(body)
        except ValidationError:
            request = None
        challenge = request.challenge if request else ""
        is_right = hmac.compare_digest(
            proof.encode(errors="replace"), prove_join(self._token, challenge, self._fingerprint, body).encode()
        )
        if not is_right:
            raise self.failed(
                peer,
                NotProvenError(
                    "the token is not this host's", fix="paste the line that potluck host prints now on its machine"
                ),
            )
        if request is None:
            raise MeetingError(
                f"this host, with potluck {__version__}, does not understand the request",
                fix=other_potluck(self._install),
            )
        if not self._challenges.use(challenge):
            raise self.failed(peer, NotProvenError("this request was made before, or too long ago", fix="join again"))
        return request
