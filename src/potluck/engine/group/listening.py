"""Where a worker listens: one address, and the gate through which the run's other machines reach it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torchft.manager
from torch.distributed import ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]

from potluck.core.errors import GroupError
from potluck.gates.exposing import GateLine, TakenError
from potluck.gates.loopback import listening_ports

NUM_TRIES = 5
_STORE_TIMEOUT = timedelta(seconds=300)
_binding = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The addresses that a worker listens on, and the gate that exposes its ports to the run's machines.

    Without a gate (torchrun, or the user's own lighthouse) both are this machine's address on the route to the others.
    """

    address: str
    gradient_address: str
    gate: str | None = None
    run: str = ""

    @property
    def is_private(self) -> bool:
        """Whether gradients go through the gates."""
        return self.gate is not None and self.gradient_address == self.address

    def open_line(self) -> GateLine | None:
        """A connection to the gate: a port that is exposed on it stays exposed until it is closed."""
        return None if self.gate is None else GateLine(self.gate, self.run)


def free_port(address: str) -> int:
    """A port that is free at this moment."""
    with socket.create_server((address, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def make_store(address: str, port: int = 0, timeout: timedelta = _STORE_TIMEOUT) -> TCPStore:
    """A store that listens on this address only; by default torch's store listens on all addresses."""
    listener = socket.create_server((address, port), backlog=128)
    return TCPStore(
        address,
        listener.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        timeout=timeout,
        master_listen_fd=listener.detach(),
    )


@contextmanager
def manager_server_with(**ours: Any) -> Iterator[None]:
    """Inside, a torchft.Manager starts its server with these options: where it listens, how long it tries to connect.

    By default the server listens on all addresses. torchft's Manager has no arguments for these options, but its
    ManagerServer has. This is the only place that replaces a name inside torchft.
    """
    original = torchft.manager.ManagerServer

    def start(*arguments: Any, **options: Any) -> Any:
        return original(*arguments, **{**options, **ours})

    with _binding:
        torchft.manager.ManagerServer = start
        try:
            yield
        finally:
            torchft.manager.ManagerServer = original


def open_gloo(listening: Listening) -> tuple[Any, GateLine | None, str]:
    """A Gloo device on the address for gradients, for every group of this worker; exposed by the gate if there is one.

    Returns the device, the line to the gate or None, and the address that peers dial, empty if they use the gates.
    """
    for _ in range(NUM_TRIES):
        before = _own_ports(listening.gradient_address)
        device = ProcessGroupGloo.create_device(hostname=listening.gradient_address)
        line = listening.open_line() if listening.is_private else None
        ports = _own_ports(listening.gradient_address) - before
        if line is None:
            return device, None, f"{listening.gradient_address}:{min(ports)}" if ports else ""
        try:
            line.expose(dict.fromkeys(ports, "bulk"))
        except TakenError:
            line.close()
            continue
        return device, line, ""
    raise no_port()


def no_port() -> GroupError:
    """The error when too many ports of this worker were already taken on other machines."""
    return GroupError(
        "other machines of the run have no free port for this worker",
        fix="see which programs listen everywhere: ss -ltn 'src 0.0.0.0', and start the run again",
    )


def _own_ports(address: str) -> set[int]:
    """The ports on which this process listens at `address`."""
    inodes = set()
    with suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError, ValueError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    inodes.add(int(target[8:-1]))
    return listening_ports(address, inodes)
