"""Where a host listens: the addresses of this machine that others could reach, and the port on each."""

import socket

from potluck.core.errors import MeetingError
from potluck.core.plain_file import what_happened
from potluck.doctor.checks.windows import mode_behind
from potluck.machine.facts import TUNNEL, Facts
from potluck.meeting.access.networks import ReachableInterface, best_first, find_interface, read_interfaces


def choose_interfaces(address: str | None, seen: Facts | None = None) -> list[ReachableInterface]:
    """The interface with the given address, or all interfaces that other machines could reach."""
    if address is not None:
        return [find_interface(address)]
    found = best_first(read_interfaces(seen))
    if not found:
        raise MeetingError(
            "this machine has no address that others could reach",
            fix="connect it to the network; to try Potluck on this machine alone: potluck train",
        )
    if seen is not None and mode_behind(seen) is not None:
        # Nobody can dial the address behind WSL's NAT, but others on a VPN can dial the VPN's.
        return [interface for interface in found if interface.kind == TUNNEL] or found
    return found


def bind(address: str, port: int) -> socket.socket:
    """A listening socket; raises MeetingError with a command that shows who has the port."""
    try:
        return socket.create_server((address, port), backlog=512)
    except OSError as error:
        raise MeetingError(
            f"port {port} of {address} cannot be used: {what_happened(error)}",
            fix=f"see who has it: ss -ltnp 'sport = :{port}'; or choose another: potluck host --port {port + 1}",
        ) from None
