"""`potluck join` on a machine whose host may have been replaced while it was away: who is the host now?"""

from contextlib import suppress

from potluck.core.errors import MeetingError
from potluck.gates.identity import Identity
from potluck.gates.owner_line import OwnerLine
from potluck.gates.process import GateProcess
from potluck.meeting.access.gating import as_settings
from potluck.meeting.client.joining import come_back
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.finding import Elsewhere, find_host, follow_host, membership_under, under
from potluck.meeting.succession.state_copy import KeptCopy

_ASK_S = 8.0  # other machines' gates dial this one again within a few seconds


def was_host(home: Home, membership: HostMembership) -> bool:
    """Whether this machine is the newest host that it knows, of a cluster with other machines."""
    orders = BallotFile(home.succession_dir).ballot.orders
    return membership.is_of_own_host and orders is not None and len(orders.members) > 1


def host_of_now(
    home: Home, membership: HostMembership, gate: GateProcess, identity: Identity, within_s: float = _ASK_S
) -> HostMembership:
    """This machine's membership with the host that the others know; its own again if nobody has taken its place.

    Raises where this machine would be the host again, but was made one by `potluck host`, and has to be again.
    """
    ballots = BallotFile(home.succession_dir)
    orders = ballots.ballot.orders
    assert orders is not None
    gate.start()
    gate.update(as_settings(orders, membership.machine, promised=ballots.ballot.promised))
    newer = find_host(OwnerLine(str(gate.socket)), orders, within_s)
    if newer is None and orders.host != membership.machine:  # noted, and then the disk was full or the power gone
        newer = Elsewhere(orders.host, orders.succession.term)
    if newer is not None:
        return follow_host(home, ballots, newer) or membership
    if KeptCopy(home.succession_dir, identity).state is None:
        raise MeetingError(
            f"{membership.machine} is the host itself, and no other machine has taken its place",
            fix="potluck host",
        )
    return membership


def served_by_a_successor(home: Home, membership: HostMembership) -> HostMembership | None:
    """For a machine that has left and whose host is silent: its membership with the successor that is the host now.

    Only successors are asked: they have the host's state, so this machine's credential is nothing new to them. Links to
    other machines cannot say it here, because no machine lets one in that has left.
    """
    ballots = BallotFile(home.succession_dir)
    orders = ballots.ballot.orders
    if orders is None or orders.host != membership.host or orders.succession.electorates:
        return None
    for name in orders.succession.successors:
        if name != membership.machine and orders.has(name):
            newer = Elsewhere(name, orders.succession.term + 1)  # at least: its own orders say which
            with suppress(MeetingError):  # it does not know this machine any more
                if come_back(membership_under(membership, under(orders, newer))):
                    return follow_host(home, ballots, newer)
    return None
