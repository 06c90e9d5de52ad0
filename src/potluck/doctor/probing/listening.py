"""`potluck doctor --listen` on one machine, `--reach` on another."""

import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import msgspec

from potluck.core.errors import GroupError, SettingsError
from potluck.doctor.probing.asks import Ask
from potluck.doctor.probing.channel import Channel, RemoteStation, WrongTokenError
from potluck.doctor.probing.small_packets import use_small_packets
from potluck.doctor.probing.station import LocalStation

LISTEN_PORT = 29498
_REACH_S = 3.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where a listening machine is, and the token that it printed."""

    address: str
    port: int = LISTEN_PORT
    token: str = ""


def parse_target(text: str) -> Target:
    """TOKEN@ADDRESS:PORT; without a token the machine is only dialled."""
    token, _, place = text.rpartition("@")
    address, _, port = place.partition(":")
    if not address or (port and not port.isdigit()):
        raise SettingsError(f"{text!r} is no machine to reach", fix="write an address, or what --listen has printed")
    return Target(address, int(port or LISTEN_PORT), token)


def listen(
    token: str, say: Callable[[str], None], *, port: int = LISTEN_PORT, ready: Callable[[int], None] = lambda _: None
) -> None:
    """Answer whoever knows the token, one after the other, until interrupted."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        use_small_packets(server)
        try:
            server.bind(("0.0.0.0", port))  # noqa: S104  the token guards it, and the way in is what is examined
        except OSError as error:
            raise GroupError(
                f"cannot listen on port {port}: {error.strerror}",
                fix="choose another: potluck doctor --listen --port N",
            ) from None
        server.listen()
        ready(server.getsockname()[1])
        while True:
            connection, (peer, _) = server.accept()
            with connection:
                try:
                    channel = Channel(connection, token, is_server=True)
                    say(f"{peer} examines this machine")
                    _serve(channel)
                except WrongTokenError:
                    say(f"{peer} came with a wrong token")
                except OSError:
                    say(f"{peer} has gone")


def connect(target: Target) -> tuple[RemoteStation, str, str]:
    """The listening machine, its address, and this machine's own on the way to it. OSError if it cannot be reached."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        use_small_packets(connection)
        connection.settimeout(_REACH_S)
        connection.connect((target.address, target.port))
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


def _serve(channel: Channel) -> None:
    channel.wait_forever()
    with closing(channel), closing(LocalStation()) as station:
        while True:
            question = msgspec.json.decode(channel.hear(), type=Ask)
            channel.say(msgspec.json.encode(station.ask(question)))
