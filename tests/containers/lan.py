"""Computers on one switch: a network namespace each, for containers that run on computers of their own."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "potluckc"
_SWITCH = f"{_PREFIX}-switch"
NETWORK = "10.79.0"


@contextmanager
def lan(*names: str) -> Iterator[dict[str, str]]:
    """Give each name a namespace, and the address 10.79.0.K on the switch; gives the namespaces by name."""
    _clear()
    spaces = {name: f"{_PREFIX}-{name}" for name in names}
    try:
        _ip("netns", "add", _SWITCH)
        _ip("-n", _SWITCH, "link", "add", "lan", "type", "bridge")
        _ip("-n", _SWITCH, "link", "set", "lan", "up")
        for number, space in enumerate(spaces.values(), start=1):
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
            # The veth is made inside the namespaces: nothing appears among this computer's own interfaces.
            _ip("-n", _SWITCH, "link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", _SWITCH, "link", "set", f"port{number}", "master", "lan", "up")
            _ip("-n", space, "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "route", "add", "default", "via", f"{NETWORK}.254")  # as behind a home's router
        yield spaces
    finally:
        _clear()


def _clear() -> None:
    """Remove the namespaces, also those that a test left that was killed."""
    for path in Path("/run/netns").glob(f"{_PREFIX}-*"):
        _ip("netns", "delete", path.name)


def _ip(*arguments: str) -> Sequence[str]:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
    return done.stdout.splitlines()
