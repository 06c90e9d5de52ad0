"""Finds the host of the newest term, and makes this machine follow it."""

import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from potluck.core.errors import GateError, MeetingError
from potluck.gates.lease import VOTE_S, may_decide
from potluck.gates.messages import Electorate
from potluck.gates.owner_line import OwnerLine
from potluck.meeting.access.gating import as_electorates
from potluck.meeting.access.invitation import fingerprint_of
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.notes import Follows, HostIs, WhoIsHost, read_note, write_note
from potluck.meeting.wire import GateOrders

_LOOK_S = 0.2
_ASK_S = 1.5


class Saying(Protocol):
    """The part of a line to the gate that asking needs."""

    def say(self, machine: str, text: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another machine is the host, in this term."""

    host: str
    term: int


class HostClaims:
    """Whether a machine that says it is the host may be followed: not any member's word is enough.

    It is if the host that this machine knows, or a successor that this host has named, says so; these have the host's
    state anyway. Else enough of the voters that this machine knows have to follow it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._claims: dict[str, Elsewhere] = {}
        self._asked_at = float("-inf")

    def hear(self, sender: str, note: HostIs | Follows, orders: GateOrders) -> Elsewhere | None:
        """The host to follow from now on, of a newer term than that of the orders; None as long as that is not sure."""
        found = Elsewhere(sender if isinstance(note, HostIs) else note.host, note.term)
        if found.term <= orders.succession.term:
            return None
        if sender in (orders.host, *orders.succession.successors):
            return found
        self._claims[sender] = found
        agreeing = [name for name, claim in self._claims.items() if claim == found]
        return found if all(may_decide(one, agreeing) for one in _deciders(orders)) else None

    def ask(self, line: Saying, orders: GateOrders) -> None:
        """Ask the others whom they follow, now and then, while a claim is not sure."""
        now = self._clock()
        if now - self._asked_at < _ASK_S or all(one.term <= orders.succession.term for one in self._claims.values()):
            return
        self._asked_at = now
        note = write_note(WhoIsHost(term=orders.succession.term))
        for name in dict.fromkeys(name for one in _deciders(orders) for name in one.voters):
            line.say(name, note)


def _deciders(orders: GateOrders) -> tuple[Electorate, ...]:
    """The voters that the orders name; of a machine that has left, and knows no voters, all members."""
    members = tuple(one.machine for one in orders.members)
    return as_electorates(orders.succession) or (Electorate(voters=members, tie_breaker=orders.host),)


def find_host(line: OwnerLine, orders: GateOrders, within_s: float = VOTE_S) -> Elsewhere | None:
    """The host of a newer term than that of the orders; None if enough machines confirm this one, or nobody answers."""
    deadline, claims = time.monotonic() + within_s, HostClaims()
    if not [name for name in orders.succession.voters() if name != orders.host]:
        return None
    while time.monotonic() < deadline:
        with suppress(GateError):  # the gate is starting
            if (found := newest_host(line.notes_so_far(), orders, claims)) is not None:
                return found
            claims.ask(line, orders)
            if line.touch().has_lease:
                return None
        time.sleep(_LOOK_S)
    return None


def newest_host(notes: Sequence[tuple[str, str]], orders: GateOrders, claims: HostClaims) -> Elsewhere | None:
    """The host of the newest term that notes name and that may be followed."""
    told = [
        found
        for sender, text in notes
        if isinstance(note := read_note(text), HostIs | Follows)
        if (found := claims.hear(sender, note, orders)) is not None
    ]
    return max(told, key=lambda one: one.term, default=None)


def under(orders: GateOrders, elsewhere: Elsewhere) -> GateOrders:
    """The orders with another host, until that host sends its own."""
    succession = orders.succession.model_copy(update={"term": elsewhere.term})
    return orders.model_copy(update={"host": elsewhere.host, "succession": succession})


def membership_under(membership: HostMembership, orders: GateOrders, address: str = "") -> HostMembership:
    """This machine's membership with the host of the orders; `address` is where that host was reached last."""
    host = next(one for one in orders.members if one.machine == orders.host)
    addresses = [address, *host.addresses] if address else host.addresses
    return membership.model_copy(
        update={
            "host": host.machine,
            "address": addresses[0],
            "port": host.port,
            "fingerprint": fingerprint_of(ssl.PEM_cert_to_DER_cert(host.certificate)).hex(),
        }
    )


def follow_host(home: Home, ballots: BallotFile, elsewhere: Elsewhere, address: str = "") -> HostMembership | None:
    """Note on the disk that another machine is the host; the new membership, None if this machine has none.

    Raises with what to type where that machine joined while this one was away: its address is not known here.
    """
    orders, membership = ballots.ballot.orders, home.membership()
    if orders is None or membership is None:
        return None
    if not orders.has(elsewhere.host):
        raise MeetingError(
            f"{elsewhere.host} is the host now, and this machine does not know it: {elsewhere.host} joined while this "
            "machine was away",
            fix=f"on {elsewhere.host}: cat ~/.potluck/host/invitation.txt; then here: potluck join p1-..., with that "
            "line",
        )
    changed = under(orders, elsewhere)
    ballots.note(orders=changed)
    followed = membership_under(membership, changed, address)
    home.remember(followed)
    return followed
