"""How the processes of a probe meet: like workers, each on an address of its own, through gates if there are any."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from potluck.core.environment import read_gate
from potluck.engine.group.listening import Listening, make_store, open_gloo


@dataclass(frozen=True, slots=True)
class Met:
    """The store of all processes, this process's Gloo device, and its connections to the gate, which must stay open."""

    store: TCPStore
    device: Any
    lines: tuple[Any, ...]


def meet(wanted: dict[str, Any], timeout: timedelta) -> Met:
    """Rank 0 opens the store at `meeting` and `port`; every rank listens at its own `address`."""
    gate, gate_run = read_gate()
    listening = Listening(address=wanted["address"], gradient_address=wanted["address"], gate=gate, run=gate_run)
    line = listening.open_line() if wanted["rank"] == 0 else None
    if wanted["rank"] == 0:
        store = make_store(wanted["meeting"], wanted["port"], timeout)
        if line is not None:
            line.expose({wanted["port"]: "control"})
    else:
        store = TCPStore(wanted["meeting"], wanted["port"], is_master=False, wait_for_workers=False, timeout=timeout)
    device, gloo_line, _ = open_gloo(listening)
    return Met(store, device, (line, gloo_line))
