"""What a worker needs to be in a group: its name, where it listens, access to its training state."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from potluck.engine.group.listening import Listening


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """This worker's place in a group."""

    name: str
    machine: str
    lighthouse: str
    secret: bytes
    listening: Listening
    share: int | None = None
    expected: int = 1
    """How many workers to wait for before the very first step."""
    backend: str = "auto"
    device: torch.device
    lan_address: str = ""
    """Where other machines reach this machine past its gate; empty if it is not known."""
    nccl_log: Path = Path("nccl.log")
    """Where NCCL's messages go if NCCL_DEBUG asks for many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """The functions that read this worker's training state for a peer, and replace it by a peer's."""

    read: Callable[[], dict[str, Any]]
    replace: Callable[[dict[str, Any]], None]
