"""The way in: a machine proves the token, fits, can be dialled, and gets a credential of its own."""

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Callable

from pydantic import ValidationError

from potluck.core.errors import MeetingError
from potluck.core.version import __version__
from potluck.doctor.case import OPEN
from potluck.doctor.probing.dialling import try_port
from potluck.doctor.probing.ports import OpenedPorts
from potluck.meeting import doorway
from potluck.meeting.networks import Interface
from potluck.meeting.proof import Challenges, FailureLimit, prove, prove_back
from potluck.meeting.roster import Roster
from potluck.meeting.token import metrics_key
from potluck.meeting.wire import Facts, JoinAnswer, JoinRequest, VersionAnswer

_DIAL_BACK_S = 15.0


class NotProvenError(MeetingError):
    """Whoever asks has not shown that they may."""


class TooManyTriesError(MeetingError):
    """Too many wrong answers from one address."""


class Door:
    """Lets machines in, one check after the other; the cheapest and the secret one first."""

    def __init__(
        self,
        *,
        token: bytes,
        fingerprint: bytes,
        facts: Facts,
        interfaces: list[Interface],
        roster: Roster,
        let_in: Callable[[str], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._token = token
        self._fingerprint = fingerprint
        self._facts = facts
        self._interfaces = interfaces
        self._roster = roster
        self._let_in = let_in
        self._clock = clock
        self._challenges = Challenges()
        self.failures = FailureLimit()

    def version(self) -> VersionAnswer:
        return VersionAnswer(
            potluck=__version__, host=self._facts.machine, time=self._clock(), challenge=self._challenges.new()
        )

    def check_tries(self, address: str) -> None:
        """Refuse to listen to an address with too many wrong answers."""
        wait_s = self.failures.wait_s(address)
        if wait_s > 0:
            raise TooManyTriesError(
                f"too many wrong answers from {address}", fix=f"wait {wait_s:.0f} s, then try again"
            )

    def may_read_metrics(self, key: str) -> bool:
        """Whether this is the key that is good for the metrics alone."""
        return hmac.compare_digest(key.encode(errors="replace"), metrics_key(self._token).encode())

    async def join(self, body: bytes, proof: str, peer: str) -> JoinAnswer:
        """Let a machine in, or say why not."""
        request = self._proven(body, proof, peer)
        theirs = request.facts
        doorway.check_versions(theirs, self._facts)
        doorway.check_clock(theirs, self._facts, ahead_s=request.clock_ahead_s, round_trip_s=request.round_trip_s)
        holder = self._roster.machines.get(theirs.machine)
        doorway.check_name(theirs, holder.facts if holder else None)
        doorway.check_address(theirs, self._facts, peer=peer)
        met = await asyncio.to_thread(
            try_port, theirs.address, request.listening_port, request.hello, timeout_s=doorway.DIAL_S
        )
        if met != OPEN:
            raise doorway.unreachable(
                dialler=self._facts.machine,
                listener=theirs.machine,
                at=f"{theirs.address}:{request.listening_port}",
                met=met,
                let_in=theirs.let_in,
            )
        return self._welcome(theirs, prove_back(self._token, request.challenge, self._fingerprint))

    def _proven(self, body: bytes, proof: str, peer: str) -> JoinRequest:
        self.check_tries(peer)
        try:
            request = JoinRequest.model_validate_json(body)
        except ValidationError:
            request = None
        challenge = request.challenge if request else ""
        is_right = hmac.compare_digest(
            proof.encode(errors="replace"), prove(self._token, challenge, self._fingerprint, body).encode()
        )
        if not is_right:
            self.failures.failed(peer)
            raise NotProvenError(
                "the token is not this host's", fix="paste the line that potluck host prints now on its machine"
            )
        if request is None:
            raise MeetingError(
                "this host does not understand the request", fix=f"install the host's version: potluck {__version__}"
            )
        if not self._challenges.use(challenge):
            self.failures.failed(peer)
            raise NotProvenError("this request was made before, or too long ago", fix="join again")
        return request

    def _welcome(self, facts: Facts, proof: str) -> JoinAnswer:
        """Enrol the machine, and listen for a moment so that it can try the other direction."""
        interface, word = self._interface_towards(facts.address), doorway.make_word()
        opened = OpenedPorts(interface.address, 1, word)
        asyncio.get_running_loop().call_later(_DIAL_BACK_S, opened.close)
        return JoinAnswer(
            host=self._facts.machine,
            credential=self._roster.enrol(facts),
            proof=proof,
            dial_port=opened.ports[0],
            hello=word,
            let_in=self._let_in(interface.network),
        )

    def _interface_towards(self, address: str) -> Interface:
        for interface in self._interfaces:
            if ipaddress.ip_address(address) in ipaddress.ip_network(interface.network):
                return interface
        return self._interfaces[0]
