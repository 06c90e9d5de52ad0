"""The host's lease: a host acts only while enough machines confirm it, and a machine that does promises to wait.

The rule that there are never two hosts at once, by times of CLOCK_BOOTTIME, which goes on while a computer sleeps:
- A host's gate pings; a machine confirms with a pong of the same term. From the moment when the ping was *sent* the
  confirmation counts for LEASE_S. Without enough of them the gate carries nothing to the host's lighthouses. What a
  lighthouse answers waits in the gate while the confirmations are older than FRESH_S.
- A machine that *received* a ping which its pong confirms promises its vote to no other host for VOTE_S.
- A host that cannot be confirmed, since its vote is another's or too few pongs reach it, sends pings that bind nobody.
  So does the gate of a host whose own process is gone or stuck: that process asks for the lease all the time.
- VOTE_S is longer than LEASE_S and the time for which a worker goes on without a lighthouse (engine/group/lease.py).
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from potluck.gates.messages import Electorate, Promise, Promised, Settings, Touch

LEASE_S = 1.6
"""A few pings; see PING_S."""
FRESH_S = 0.9
"""Less than a lighthouse's heartbeat timeout (1 s): when it has given up workers because this host was cut off, the
host's newest confirmations are older than this, and its answer about who trains without them waits."""
VOTE_S = 4.0
TENDED_S = 4.0
"""A gate that the host's part of its machine has not asked for so long acts for nobody."""
NEW_S = 12.0
"""A new host's part has so long to begin, on a computer with little processor time."""
PING_S = 0.4
"""Between a host and the others; other links are pinged less often."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_time() -> float:
    """Seconds by a clock that is never set, and does not stop while a computer sleeps."""
    return time.clock_gettime(_CLOCK)


def may_decide(electorate: Electorate, present: Collection[str]) -> bool:
    """Whether these machines are more than half of the voters, or half of them with the tie-breaker."""
    here = sum(voter in present for voter in electorate.voters)
    is_half = 2 * here == len(electorate.voters) and electorate.tie_breaker in present
    return 2 * here > len(electorate.voters) or is_half


class Confirming(Protocol):
    """A link, as the lease sees it."""

    def confirmed_at(self, term: int) -> float:
        """When the last ping was sent that the other machine has confirmed for this term; -inf if none was."""
        ...

    def reached_at(self) -> float:
        """When the last ping was sent that the other machine has answered; -inf if none was."""
        ...


class HostLease:
    """What a gate knows of the host's term: its own promise, the host's last ping, and who confirms this machine."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        links: Mapping[str, Confirming],
        clock: Callable[[], float] = boot_time,
    ) -> None:
        self._settings = settings
        self._links = links
        self._clock = clock
        self._promised = 0
        self._promised_to = ""
        self._heard_at = clock()  # a gate that has just started may have confirmed the host a moment ago
        self.newest_term = 0
        self._term = 0
        self._term_since = self._heard_at
        self._tended_at = float("-inf")

    @property
    def term(self) -> int:
        """The term of the host that this machine follows, or is."""
        return self._settings().term

    @property
    def promised(self) -> int:
        """The newest term that this machine takes part in: confirmations name it."""
        settings = self._settings()
        return max(self._promised, settings.promised, settings.term)

    @property
    def is_valid(self) -> bool:
        """Whether this machine's host may act now; a host without electorates needs nobody."""
        settings = self._settings()
        if not settings.electorates:
            return True
        if self.promised > settings.term or not self._is_tended():
            return False
        return self._is_confirmed(LEASE_S)

    @property
    def is_fresh(self) -> bool:
        """Whether this machine's host has been confirmed so lately that answers of its lighthouses may go out."""
        return not self._settings().electorates or self._is_confirmed(FRESH_S)

    def _is_confirmed(self, within_s: float) -> bool:
        here = self.confirmed_by(within_s)
        return all(may_decide(electorate, here) for electorate in self._settings().electorates)

    def confirmed_by(self, within_s: float = LEASE_S) -> tuple[str, ...]:
        """This machine, and those that have confirmed it a moment ago."""
        settings, now = self._settings(), self._clock()
        others = [name for name, link in self._links.items() if now - link.confirmed_at(settings.term) < within_s]
        return (settings.machine, *others)

    def binds(self) -> bool:
        """Whether this machine's pings bind the votes of the others: it is the host, and may be confirmed."""
        settings, now = self._settings(), self._clock()
        is_tended = self._is_tended()
        if settings.host != settings.machine or self.promised > settings.term or not is_tended:
            return False
        reached = [name for name, link in self._links.items() if now - link.reached_at() < LEASE_S]
        here = (settings.machine, *reached)
        is_new = now - self._term_since < LEASE_S
        return is_new or all(may_decide(electorate, here) for electorate in settings.electorates)

    def _is_tended(self) -> bool:
        """Whether the host's part of this machine is at work, or has just begun to be."""
        term, now = self.term, self._clock()
        if term != self._term:
            self._term, self._term_since = term, now
        return now - self._tended_at < TENDED_S or now - self._term_since < NEW_S

    def ping_s(self, machine: str, otherwise: float) -> float:
        """How often to ping a machine."""
        settings = self._settings()
        other = machine if settings.host == settings.machine else settings.machine
        is_of_host = settings.host in (settings.machine, machine)
        return PING_S if is_of_host and any(other in one.voters for one in settings.electorates) else otherwise

    def heard_ping(self, term: int, *, binds: bool) -> None:
        """Note a ping: one that this machine's pong confirms binds its vote, whoever that host is."""
        self.newest_term = max(self.newest_term, term)
        if binds and term == self.promised:
            self._heard_at = self._clock()

    def heard_pong(self, term: int) -> None:
        self.newest_term = max(self.newest_term, term)

    def touch(self, *, by_host: bool = False) -> Touch:
        """What the owner asks for; `by_host`: the host's part of this machine asks, and so is at work."""
        if by_host:
            self._tended_at = self._clock()
        return Touch(
            host_heard_s=self._clock() - self._heard_at,
            has_lease=self.is_valid,
            newest_term=max(self.newest_term, self.promised),
            confirmed_by=self.confirmed_by(),
            electorates=self._settings().electorates,
        )

    def promise(self, asked: Promise) -> Promised:
        """Promise this machine's vote unless its host was heard a moment ago, or has asked for the change itself.

        A host that has not been confirmed for so long may vote for another one, too.
        """
        settings = self._settings()
        is_host = settings.machine == settings.host
        is_silent = self._clock() - self._heard_at > VOTE_S and not (is_host and self._is_confirmed(VOTE_S))
        # Whom this machine confirms may have a newer term at once: the older one ends with the promise.
        bound_to = settings.host if self.promised == settings.term else self._promised_to
        is_free = asked.is_released or asked.candidate == bound_to or is_silent
        granted = is_free and asked.term > self.promised
        if granted and not asked.is_trial:
            self._promised, self._promised_to = asked.term, asked.candidate
            if asked.candidate != settings.machine:  # who has won with this vote needs time to begin
                self._heard_at = self._clock()
        return Promised(granted=granted, term=self.promised)
