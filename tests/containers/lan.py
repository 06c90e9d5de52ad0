"""Computers on one switch: a network namespace each, for containers that run on computers of their own."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "potluckc"
NETWORK = "10.79.0"


@contextmanager
def lan(*names: str) -> Iterator[dict[str, str]]:
    """Give each name a namespace, and the address 10.79.0.K on the switch; gives the namespaces by name."""
    clear_left_ones()
    mine = f"{_PREFIX}-{os.getpid()}"
    spaces, switch = {name: f"{mine}-{name}" for name in names}, f"{mine}-switch"
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "lan", "type", "bridge")
        _ip("-n", switch, "link", "set", "lan", "up")
        for number, space in enumerate(spaces.values(), start=1):
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
            # The veth is made inside the namespaces: nothing appears among this computer's own interfaces.
            _ip("-n", switch, "link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", switch, "link", "set", f"port{number}", "master", "lan", "up")
            _ip("-n", space, "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "route", "add", "default", "via", f"{NETWORK}.254")  # as behind a home's router
        yield spaces
    finally:
        _clear(mine)


def clear_left_ones() -> None:
    """Remove the namespaces of tests that were killed."""
    for path in Path("/run/netns").glob(f"{_PREFIX}-*"):
        process = path.name.split("-")[1]
        if process.isdigit() and not Path("/proc", process).exists():
            _ip("netns", "delete", path.name)


def _clear(prefix: str) -> None:
    for path in Path("/run/netns").glob(f"{prefix}-*"):
        _ip("netns", "delete", path.name)


def _ip(*arguments: str) -> Sequence[str]:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
    return done.stdout.splitlines()
