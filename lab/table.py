"""The table of machines: CPU use and traffic between two readings, and memory."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from lab.machine import Machine, Usage
from lab.quantities import show_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One machine's figures between two readings."""

    machine: str
    address: str
    condition: str
    cores_used: float
    cores: float
    memory_bytes: int
    memory_limit_bytes: int | None
    sent_bits_per_s: float
    received_bits_per_s: float
    num_processes: int
    num_oom_kills: int


class Watch:
    """Reads the usage of machines repeatedly; each `look` gives the rates since the one before."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = machines
        self._seen_s = time.monotonic()
        self._seen = [machine.usage() for machine in machines]

    def look(self) -> list[Row]:
        now_s = time.monotonic()
        usages = [machine.usage() for machine in self._machines]
        interval_s = max(now_s - self._seen_s, 1e-3)
        rows = [
            make_row(machine, before, after, interval_s)
            for machine, before, after in zip(self._machines, self._seen, usages, strict=True)
        ]
        self._seen_s, self._seen = now_s, usages
        return rows


def make_row(machine: Machine, before: Usage, after: Usage, interval_s: float) -> Row:
    """One machine's figures, from two readings of its usage `interval_s` seconds apart."""
    conditions = ["frozen"] * machine.is_frozen() + ["cut"] * machine.is_cut()
    return Row(
        machine=machine.name,
        address=machine.address,
        condition="+".join(conditions) or "up",
        cores_used=(after.cpu_s - before.cpu_s) / interval_s,
        cores=machine.cores(),
        memory_bytes=after.memory_bytes,
        memory_limit_bytes=machine.memory_limit_bytes(),
        sent_bits_per_s=(after.sent_bytes - before.sent_bytes) * 8 / interval_s,
        received_bits_per_s=(after.received_bytes - before.received_bytes) * 8 / interval_s,
        num_processes=after.num_processes,
        num_oom_kills=after.num_oom_kills,
    )


def render(title: str, rows: Sequence[Row]) -> Table:
    """The rows as a table for the terminal."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("machine", "address", "is"):
        table.add_column(heading, no_wrap=True)
    for heading in ("cores", "memory", "Mbit/s out", "Mbit/s in", "processes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        limit = "" if row.memory_limit_bytes is None else f"/{show_size(row.memory_limit_bytes)}"
        killed = f"{row.num_oom_kills} out of memory, " if row.num_oom_kills else ""
        table.add_row(
            row.machine,
            row.address,
            row.condition,
            f"{row.cores_used:.2f}/{row.cores:.3g}",
            f"{show_size(row.memory_bytes)}{limit}",
            f"{row.sent_bits_per_s / 1e6:.1f}",
            f"{row.received_bits_per_s / 1e6:.1f}",
            f"{killed}{row.num_processes}",
        )
    return table
