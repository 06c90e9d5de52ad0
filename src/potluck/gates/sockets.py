"""Socket options of gates: non-blocking, small messages sent at once, dead peers noticed, control before bulk."""

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

from potluck.gates.loopback import spell_end
from potluck.gates.messages import Kind

# Without acknowledgement of sent bytes, or room for them.
_DEAD_AFTER_MS = {"host": 10_000, "control": 10_000, "bulk": 60_000}
_IDLE_S, _PROBE_S, _NUM_PROBES = 5, 2, 3
_LOW_DELAY = 0x10  # IP's type of service, which default queues and Wi-Fi respect
_INTERACTIVE = 6
_UNSENT_BYTES = 1 << 17  # of bulk that may wait in the kernel: more would only delay other traffic
_TCP_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)
_TCP_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", 18)
_TCP_RTO_MAX_MS = 44  # on newer kernels: the longest wait before a lost packet is sent again
_AGAIN_AFTER_MS = 1000


def prepare(connection: socket.socket) -> socket.socket:
    """Make a socket non-blocking for the event loop, and let TCP send small messages at once."""
    connection.setblocking(False)
    if connection.family == socket.AF_INET:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def watch_over(connection: socket.socket, kind: Kind) -> None:
    """Set up a connection to another machine: notice when the peer is dead, and send control before bulk."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _NUM_PROBES)
    connection.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, _DEAD_AFTER_MS[kind])
    with suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MAX_MS, _AGAIN_AFTER_MS)
    if kind != "bulk":
        connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _LOW_DELAY)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, _INTERACTIVE)
    else:
        connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _UNSENT_BYTES)


def is_own_users(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end of a connection on this machine."""
    ends = [spell_end(*connection.getpeername()), spell_end(*connection.getsockname())]
    # A program may well dial an IPv4 address with an IPv6 socket.
    for table, prefix in (("tcp", ""), ("tcp6", "0000000000000000FFFF0000")):
        wanted = f" {prefix}{ends[0]} {prefix}{ends[1]} "
        try:
            lines = Path(f"/proc/self/net/{table}").read_text().splitlines()
        except OSError:
            continue
        line = next((line for line in lines if wanted in line), "")
        if line:
            return int(line.split()[7]) == os.getuid()
    return False


def peer_user(connection: socket.socket) -> int:
    """The user id of the process at the other end of a Unix socket."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return int(user)
