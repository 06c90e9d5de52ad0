"""This machine's address as its peers see it."""

import socket
from urllib.parse import urlsplit

from potluck.core.errors import GroupError


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
