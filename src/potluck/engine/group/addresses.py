"""This machine's address as its peers see it."""

import socket
from urllib.parse import urlsplit

from potluck.core.errors import GroupError
from potluck.machine.facts import WIRED, WIRELESS
from potluck.machine.interfaces import read_interfaces

_ANYWHERE = "192.0.2.1"  # no computer has this address; a route to it is the default route


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of http://host:port or host:port."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    if not parts.hostname or not parts.port:
        raise GroupError(f"{address!r} is not an address", fix="write it as http://HOST:PORT")
    return parts.hostname, parts.port


def address_towards(host: str) -> str:
    """The IPv4 address that this machine uses on the route to a host; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError as error:
            raise GroupError(
                f"this machine has no route to {host}: {error.strerror or error}",
                fix="check the cable or Wi-Fi, and the address",
            ) from error
        return str(probe.getsockname()[0])


def own_address() -> str:
    """This machine's address for others to dial: on the default route, else the only one on a cable or Wi-Fi."""
    try:
        return address_towards(_ANYWHERE)
    except GroupError:
        found = [
            address.partition("/")[0]
            for one in read_interfaces()
            if one.is_up and one.kind in (WIRED, WIRELESS)
            for address in one.addresses
        ]
    if len(found) > 1:
        raise GroupError(
            f"MASTER_ADDR is not set, and this machine has {len(found)} addresses: {', '.join(found)}",
            fix=f"export MASTER_ADDR with the one that the other machines reach, for example MASTER_ADDR={found[0]}",
        )
    return found[0] if found else "127.0.0.1"


def is_own(host: str) -> bool:
    """Whether this name or address means this machine: a connection to it would begin at the address itself."""
    try:
        meant = socket.gethostbyname(host)
    except OSError:
        return False  # whoever dials the name gets the error
    return meant.startswith("127.") or address_towards(meant) == meant


def answers(host: str, port: int, within_s: float) -> bool:
    """Whether a process accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=within_s).close()
    except OSError:
        return False
    return True
