"""Where a worker listens: one address, and the gate through which the run's other machines dial it."""

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
    """The addresses that a worker listens on, and who makes them known to the run's machines.

    Without a gate (torchrun, a lighthouse of one's own) both are this machine's address on the way to the others.
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
        """A conversation with the gate: what is exposed in it stays so until it is closed."""
        return None if self.gate is None else GateLine(self.gate, self.run)


def free_port(address: str) -> int:
    """A port that nobody has at this moment."""
    with socket.create_server((address, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def make_store(address: str, port: int = 0, timeout: timedelta = _STORE_TIMEOUT) -> TCPStore:
    """A store on this address only; left to itself torch takes all of them."""
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

    Left to itself it listens at all addresses. torchft's Manager has no arguments for these, its ManagerServer has:
    this is the one place where a name of torchft's is replaced.
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
    """A Gloo device on the address for gradients, known to the run's machines; it serves every group of this worker.

    Returned with it: where others dial it, if that is not through the gates.
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
    """Too many tries."""
    return GroupError(
        "other machines of the run have no free port for this worker",
        fix="see which programs listen everywhere: ss -ltn 'src 0.0.0.0', and start the run again",
    )


def _own_ports(address: str) -> set[int]:
    """Ports on which this process listens."""
    inodes = set()
    with suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError, ValueError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    inodes.add(int(target[8:-1]))
    return listening_ports(address, inodes)
