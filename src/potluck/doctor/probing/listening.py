"""`potluck doctor --listen` on one machine, `--reach` on another, over the port that a host or gate will use later."""

import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import msgspec

from potluck.core.environment import DEFAULT_PORT
from potluck.core.errors import GroupError, SettingsError
from potluck.doctor.probing.asks import Ask
from potluck.doctor.probing.channel import Channel, RemoteStation, WrongTokenError
from potluck.doctor.probing.ports import OpenedPort, dialled
from potluck.doctor.probing.station import LocalStation

_EVERYWHERE = "0.0.0.0"  # noqa: S104  the token guards the port, and whether others can dial it is examined
_REACH_S = 3.0


@dataclass(frozen=True, slots=True)
class Target:
    """The address and port of a listening machine, and the token that it printed."""

    address: str
    port: int = DEFAULT_PORT
    token: str = ""


def parse_target(text: str) -> Target:
    """Parse TOKEN@ADDRESS:PORT; a machine without a token is only dialled."""
    token, _, place = text.rpartition("@")
    address, _, port = place.partition(":")
    if not address or (port and not port.isdigit()):
        raise SettingsError(f"{text!r} is no machine to reach", fix="write an address, or what --listen has printed")
    return Target(address, int(port or DEFAULT_PORT), token)


def listen(
    token: str, say: Callable[[str], None], *, port: int = DEFAULT_PORT, ready: Callable[[int], None] = lambda _: None
) -> None:
    """Answer machines that know the token, until interrupted."""

    def converse(connection: socket.socket, begun: bytes) -> None:
        peer = connection.getpeername()[0]
        try:
            channel = Channel(connection, token, is_server=True, begun=begun)
            say(f"{peer} examines this machine")
            _serve(channel, opened)
        except WrongTokenError:
            say(f"{peer} came with a wrong token")
        except OSError:
            say(f"{peer} has gone")

    try:
        opened = OpenedPort(_EVERYWHERE, port, secrets.token_hex(16), converse)  # an examination sets its own word
    except OSError as error:
        raise GroupError(
            f"cannot listen on port {port}: {error.strerror}",
            fix="if this machine has joined a host: potluck doctor --cluster; else choose another port: "
            "potluck doctor --listen --port N",
        ) from None
    with closing(opened):
        ready(opened.port)
        threading.Event().wait()


def connect(target: Target) -> tuple[RemoteStation, str, str]:
    """Connect to a listening machine: its station, its address, and this machine's own. OSError if that fails."""
    connection = dialled(target.address, target.port, _REACH_S, with_small_packets=True)
    try:
        channel = Channel(connection, target.token, is_server=False)
    except WrongTokenError:
        connection.close()
        raise GroupError(
            f"{target.address} does not accept the token", fix="copy the whole line that --listen printed there"
        ) from None
    except OSError:
        connection.close()
        raise
    return RemoteStation(channel), str(connection.getpeername()[0]), str(connection.getsockname()[0])


def _serve(channel: Channel, opened: OpenedPort) -> None:
    channel.wait_forever()
    with closing(channel), closing(LocalStation(opened=opened)) as station:
        while True:
            question = msgspec.json.decode(channel.hear(), type=Ask)
            channel.say(msgspec.json.encode(station.ask(question)))
