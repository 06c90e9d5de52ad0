"""Joining a host: from a pasted line to a membership."""

from potluck.engine.addresses import address_towards
from potluck.gates.identity import Identity
from potluck.machine.facts import Facts as Snapshot
from potluck.meeting.client import HostClient, HostSilentError, knock, measure_clock
from potluck.meeting.facts import introduce
from potluck.meeting.home import Home, Membership
from potluck.meeting.invitation import Invitation
from potluck.meeting.networks import find_interface
from potluck.meeting.wire import JoinRequest

_PATIENCE_S = 20.0


def join(
    invitation: Invitation, machine: str, home: Home, seen: Snapshot, *, identity: Identity, gate_port: int
) -> Membership:
    """Prove the token, be checked, and remember the host. Whether others can dial this machine shows later."""
    address = address_towards(invitation.address)
    with HostClient(invitation.address, invitation.port, invitation.fingerprint, timeout_s=_PATIENCE_S) as client:
        try:
            version, ahead_s, round_trip_s = measure_clock(client)
        except HostSilentError as error:
            raise HostSilentError(
                error.args[0],
                fix=f"check that potluck host runs there; if it does, its firewall keeps {address} out, and there: "
                f"potluck doctor --fix-script linux --peer {address} --port {invitation.port} | sudo bash",
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
        answer = knock(client, invitation, request)
    membership = Membership(
        machine=machine,
        host=answer.host,
        address=invitation.address,
        port=invitation.port,
        fingerprint=invitation.fingerprint.hex(),
        credential=answer.credential,
    )
    home.remember(membership)
    return membership
