"""Challenge-response proof of the token, which is never sent: single-use challenges, and a limit on wrong answers."""

import hmac
import secrets
import struct
import time
from collections import deque
from collections.abc import Callable

from potluck.core.proofs import prove

_NONCE_BYTES = 16
_TAG_BYTES = 16
_CHALLENGE = struct.Struct(f">{_NONCE_BYTES}sd")
LIFETIME_S = 60.0


def prove_join(token: bytes, challenge: str, fingerprint: bytes, body: bytes) -> str:
    """A machine's proof of the token: an HMAC that is valid only for this challenge, this host and this request."""
    return prove(token, "join", challenge.encode(), fingerprint, body).hex()


def prove_back(token: bytes, challenge: str, fingerprint: bytes) -> str:
    """The host's proof of the token, by which a joining machine sees that the host knows the token too."""
    return prove(token, "host", challenge.encode(), fingerprint).hex()


class Challenges:
    """Single-use challenges, authenticated by an HMAC: the host stores a challenge only once it is used."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)  # new at every start: challenges from before a restart are void
        self._used: dict[str, float] = {}

    def new(self) -> str:
        content = _CHALLENGE.pack(secrets.token_bytes(_NONCE_BYTES), self._clock() + LIFETIME_S)
        return (content + self._tag(content)).hex()

    def use(self, challenge: str) -> bool:
        """Whether this host made the challenge, and it has neither expired nor been used; marks it as used."""
        now = self._clock()
        self._used = {used: ends for used, ends in self._used.items() if ends > now}
        try:
            raw = bytes.fromhex(challenge)
        except ValueError:
            return False
        content, tag = raw[: _CHALLENGE.size], raw[_CHALLENGE.size :]
        if len(content) != _CHALLENGE.size or not hmac.compare_digest(tag, self._tag(content)):
            return False
        _, ends = _CHALLENGE.unpack(content)
        if ends <= now or challenge.lower() in self._used:
            return False
        self._used[challenge.lower()] = ends
        return True

    def _tag(self, content: bytes) -> bytes:
        return prove(self._key, "challenge", content)[:_TAG_BYTES]


class FailureLimit:
    """Rate limit on wrong answers: after `most` within `within_s` from one address, the address has to wait."""

    def __init__(
        self, most: int = 10, within_s: float = 60.0, addresses: int = 1000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._within_s = within_s
        self._num_addresses = addresses
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}

    def wait_s(self, address: str) -> float:
        """How long this address must wait before its next try; 0 if it may try."""
        times = self._failures.get(address)
        if times is None or len(times) < self._most:
            return 0.0
        return max(0.0, times[0] + self._within_s - self._clock())

    def failed(self, address: str) -> None:
        """Count a wrong answer from this address."""
        times = self._failures.pop(address, deque(maxlen=self._most))
        times.append(self._clock())
        self._failures[address] = times
        while len(self._failures) > self._num_addresses:  # forget the address whose last failure is the oldest
            del self._failures[next(iter(self._failures))]
