"""Programs that listen on the ports that training needs."""

import os
from collections.abc import Sequence

from potluck.machine.facts import Listener


def read_listeners(ports: Sequence[int]) -> tuple[Listener, ...]:
    """Other processes that listen on these ports; only an administrator sees which process it is of another user."""
    import psutil  # noqa: PLC0415  only the commands that need facts pay for the import

    found: dict[int, Listener] = {}
    for one in psutil.net_connections("tcp"):
        if one.status == psutil.CONN_LISTEN and one.laddr.port in ports and one.pid != os.getpid():
            found.setdefault(
                one.laddr.port,
                Listener(port=one.laddr.port, address=one.laddr.ip, process=_name(one.pid), pid=one.pid),
            )
    return tuple(found[port] for port in sorted(found))


def _name(pid: int | None) -> str:
    import psutil  # noqa: PLC0415

    if pid is None:
        return ""
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return ""
