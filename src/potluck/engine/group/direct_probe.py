"""Finds machines whose ports for gradients cannot be dialled, if gradients do not go through gates.

Gloo's own error names no machine. The ports are open before a group forms, so a plain TCP connection is a valid test.
"""

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from potluck.core.plain_file import what_happened
from potluck.engine.group.addresses import host_and_port

NO_ANSWER = "no answer from"
_CONNECT_S = 3.0
_MOST_AT_ONCE = 16


def find_unreachable(addresses: Mapping[str, str], timeout_s: float = _CONNECT_S) -> dict[str, str]:
    """The machines whose `address:port` cannot be dialled, each with the reason."""
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, max(1, len(addresses))), thread_name_prefix="potluck-probe") as pool:
        found = pool.map(lambda machine: _dial(addresses[machine], timeout_s), addresses)
        return {machine: trouble for machine, trouble in zip(addresses, found, strict=True) if trouble}


def _dial(address: str, timeout_s: float) -> str:
    host, port = host_and_port(address)
    try:
        socket.create_connection((host, port), timeout_s).close()
    except TimeoutError:
        return f"{NO_ANSWER} {address}"
    except OSError as error:
        return f"{what_happened(error)}: {address}"
    return ""
