"""Joining a host: from a pasted line to a membership, with both directions tried."""

from contextlib import closing

from potluck.doctor.case import OPEN
from potluck.doctor.probing.dialling import try_port
from potluck.doctor.probing.ports import OpenedPorts
from potluck.engine.addresses import address_towards
from potluck.machine.facts import Facts as Snapshot
from potluck.meeting import doorway
from potluck.meeting.client import HostClient, knock, measure_clock
from potluck.meeting.facts import introduce
from potluck.meeting.home import Home, Membership
from potluck.meeting.invitation import Invitation
from potluck.meeting.networks import find_interface
from potluck.meeting.wire import JoinRequest, Report


def join(invitation: Invitation, machine: str, home: Home, seen: Snapshot) -> Membership:
    """Prove the token, be checked, try the way to the host on a high port, and remember the host."""
    with HostClient(invitation.address, invitation.port, invitation.fingerprint, timeout_s=20.0) as client:
        version, ahead_s, round_trip_s = measure_clock(client)
        address = address_towards(invitation.address)
        network = find_interface(address).network
        facts = introduce(seen, machine=machine, machine_id=home.machine_id(), address=address, network=network)
        word = doorway.make_word()
        with closing(OpenedPorts(address, 1, word)) as opened:
            request = JoinRequest(
                challenge=version.challenge,
                facts=facts,
                clock_ahead_s=ahead_s,
                round_trip_s=round_trip_s,
                listening_port=opened.ports[0],
                hello=word,
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
    met = try_port(invitation.address, answer.dial_port, answer.hello, timeout_s=doorway.DIAL_S)
    if met != OPEN:
        with HostClient.of(membership) as client:
            client.ask("POST", "/report", Report(is_leaving=True))
        raise doorway.unreachable(
            dialler=machine,
            listener=answer.host,
            at=f"{invitation.address}:{answer.dial_port}",
            met=met,
            let_in=answer.let_in,
        )
    home.remember(membership)
    return membership
