"""Where the processes of a probe meet: like workers, on one address each, through the gates where there are some."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from potluck.core.environment import read_launch
from potluck.engine.group.listening import Listening, make_store, open_gloo


@dataclass(frozen=True, slots=True)
class Met:
    """A store that all have, and this process's Gloo device. Kept, so that nothing is closed too early."""

    store: TCPStore
    device: Any
    lines: tuple[Any, ...]


def meet(wanted: dict[str, Any], timeout: timedelta) -> Met:
    """Rank 0 opens the store at `meeting` and `port`; everybody listens at its own `address`."""
    launch = read_launch()
    listening = Listening(
        address=wanted["address"], gradient_address=wanted["address"], gate=launch.gate, run=launch.gate_run
    )
    line = listening.open_line() if wanted["rank"] == 0 else None
    if wanted["rank"] == 0:
        store = make_store(wanted["meeting"], wanted["port"], timeout)
        if line is not None:
            line.expose({wanted["port"]: "control"})
    else:
        store = TCPStore(wanted["meeting"], wanted["port"], is_master=False, wait_for_workers=False, timeout=timeout)
    device, gloo_line, _ = open_gloo(listening)
    return Met(store, device, (line, gloo_line))
