"""Joining a host: from a pasted line to a membership."""

import ssl
from collections.abc import Callable

import msgspec

from potluck.core.errors import MeetingError
from potluck.core.version_rule import MAY_DIFFER, Fit, judge, title
from potluck.engine.group.addresses import address_towards
from potluck.gates.identity import Identity
from potluck.machine.adapters import address_outside
from potluck.machine.facts import Facts as Snapshot
from potluck.machine.parity import READING_S, read_parity
from potluck.meeting.access.introduction import introduce, versions_of
from potluck.meeting.access.invitation import Invitation, fingerprint_of
from potluck.meeting.access.networks import find_interface
from potluck.meeting.client.client import (
    AskedForParityError,
    HostClient,
    HostSilentError,
    NotAdmittedError,
    knock,
    measure_clock,
)
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.wire import JoinAnswer, JoinRequest, VersionAnswer

_PATIENCE_S = 20.0
_KNOWN_S = 5.0


def check_known(identity: Identity, membership: HostMembership | None) -> None:
    """Raise if a machine with a membership has a new certificate: its host knows it by the lost one."""
    if identity.is_new and membership is not None:
        raise MeetingError(
            f"this machine's key and certificate were not in {identity.key_file.parent} any more, and new ones were "
            f"made: {membership.host} does not know this machine by them",
            fix="join with the line that potluck host prints",
        )


def changed_versions(seen: Snapshot, membership: HostMembership | None) -> list[str]:
    """Warnings: Python or torch has another minor version than at this machine's join, when the host checked it."""
    if membership is None:
        return []
    now, then = versions_of(seen), membership.versions
    return [
        f"{title(package)} was {then[package]} when this machine joined {membership.host}, and is {now[package]} now: "
        f"to have it checked, paste the line that potluck host prints there: potluck join p1-..."
        for package in MAY_DIFFER
        if package in then and judge(package, then[package], now[package]) is not Fit.EQUAL
    ]


def join(
    invitation: Invitation,
    machine: str,
    home: Home,
    seen: Snapshot,
    *,
    identity: Identity,
    gate_port: int,
    tell: Callable[[str], None] = lambda _: None,
) -> HostMembership:
    """Join the host with a proof of the token, and save the membership. Links to other machines are not checked.

    The line of a machine that was this one's host and is not any more leads to the membership of now.
    `tell` prints why it takes seconds longer: the host has other versions, and a parity check decides.
    """
    address = address_towards(invitation.address)
    outside = address_outside(address, seen.windows if seen.wsl else None)
    with HostClient(invitation.address, invitation.port, invitation.fingerprint, timeout_s=_PATIENCE_S) as client:
        try:
            version, ahead_s, round_trip_s = measure_clock(client)
        except HostSilentError as error:
            if (known := known_through(invitation, home)) is not None:
                asked = "asks the other machines" if known.is_of_own_host else f"knows {known.host}, and asks there"
                tell(f"{invitation.address} does not answer as a host; this machine {asked}")
                return known
            raise HostSilentError(
                error.args[0],
                fix="check that potluck host runs there (potluck status on a joined machine says who is the host now); "
                f"if it does, its firewall keeps {outside} out (on Windows: docs/windows.md), and there: "
                f"potluck doctor --fix-script linux --peer {outside} --port {invitation.port} | sudo bash",
            ) from None
        facts = introduce(
            seen,
            machine=machine,
            machine_id=home.machine_id(),
            address=address,
            network=find_interface(address).network,
            identity=identity,
            gate_port=gate_port,
        )
        request = JoinRequest(
            challenge=version.challenge, facts=facts, clock_ahead_s=ahead_s, round_trip_s=round_trip_s
        )
        try:
            answer = knock(client, invitation, request)
        except AskedForParityError as error:
            tell(error.args[0])
            answer = _knock_with_parity(invitation, request)
    membership = HostMembership(
        machine=machine,
        host=answer.host,
        address=invitation.address,
        port=invitation.port,
        fingerprint=invitation.fingerprint.hex(),
        credential=answer.credential,
        versions=facts.versions,
    )
    BallotFile(home.succession_dir).forget()  # of a cluster that this machine belonged to before
    home.remember(membership)
    return membership


def known_through(invitation: Invitation, home: Home) -> HostMembership | None:
    """This machine's membership, if the line is of another machine of its cluster than the host that it knows."""
    membership, orders = home.membership(), BallotFile(home.succession_dir).ballot.orders
    if membership is None or orders is None:
        return None
    if membership.fingerprint == invitation.fingerprint.hex():
        return None
    fingerprints = [fingerprint_of(ssl.PEM_cert_to_DER_cert(one.certificate)) for one in orders.members]
    return membership if invitation.fingerprint in fingerprints else None


def _knock_with_parity(invitation: Invitation, request: JoinRequest) -> JoinAnswer:
    """Join with this machine's parity reading; the host may still be computing its own, which it compares with."""
    parity = msgspec.json.encode(read_parity()).decode()
    with HostClient(invitation.address, invitation.port, invitation.fingerprint, timeout_s=READING_S) as client:
        challenge = client.ask_for(VersionAnswer, "GET", "/version").challenge
        return knock(client, invitation, request.model_copy(update={"challenge": challenge, "parity": parity}))


def come_back(membership: HostMembership) -> bool:
    """True if this machine's host still admits it, False if the host does not answer; raises if it was removed."""
    with HostClient.of(membership, timeout_s=_KNOWN_S) as client:
        try:
            client.ask("GET", "/status")
        except NotAdmittedError:
            raise MeetingError(
                f"{membership.host} does not know {membership.machine} any more: it was taken off the roster there",
                fix=f"paste the line that potluck host prints on {membership.host}: potluck join p1-...",
            ) from None
        except HostSilentError:
            return False
    return True
