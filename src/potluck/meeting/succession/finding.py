"""Finds the host of the newest term, and makes this machine follow it."""

import ssl
import time
from contextlib import suppress
from dataclasses import dataclass

from potluck.core.errors import GateError
from potluck.gates.lease import VOTE_S
from potluck.gates.owner_line import OwnerLine
from potluck.meeting.access.invitation import fingerprint_of
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.notes import HostIs, read_note
from potluck.meeting.wire import GateOrders

_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another machine is the host, in this term."""

    host: str
    term: int


def find_host(line: OwnerLine, orders: GateOrders, within_s: float = VOTE_S) -> Elsewhere | None:
    """The host of a newer term than that of the orders; None if enough machines confirm this one, or nobody answers."""
    deadline = time.monotonic() + within_s
    if not [name for name in orders.succession.voters() if name != orders.host]:
        return None
    while time.monotonic() < deadline:
        with suppress(GateError):  # the gate is starting
            found = newest_host([(sender, text) for sender, text in line.notes_so_far()], orders)
            if found is not None:
                return found
            if line.touch().has_lease:
                return None
        time.sleep(_LOOK_S)
    return None


def newest_host(notes: list[tuple[str, str]], orders: GateOrders) -> Elsewhere | None:
    """The host of the newest term that notes name, if it is newer than that of the orders."""
    told = [(note.term, sender) for sender, text in notes if isinstance(note := read_note(text), HostIs)]
    term, host = max(told, default=(0, ""))
    return Elsewhere(host, term) if term > orders.succession.term else None


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
    """Note on the disk that another machine is the host; the new membership, None if this machine has none."""
    orders, membership = ballots.ballot.orders, home.membership()
    if orders is None or membership is None or all(one.machine != elsewhere.host for one in orders.members):
        return None
    changed = under(orders, elsewhere)
    ballots.note(orders=changed)
    followed = membership_under(membership, changed, address)
    home.remember(followed)
    return followed
