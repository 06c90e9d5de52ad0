"""Readings of run folders, taken outside of the host's decisions: these get only the values that were read."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from potluck.core.disk import full_disk_line
from potluck.events.types import BackendChosen
from potluck.meeting.host.runs import RunRecord
from potluck.meeting.host.troubles import Troubles
from potluck.meeting.transfer.backend_finder import BackendFinder
from potluck.meeting.transfer.run_tail import Pace, read_length, read_pace


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReading:
    """What a run's folder says at one moment."""

    pace: Pace
    last_step: int = 0
    backend: BackendChosen | None = None
    """How gradients are exchanged, and why; None before the first step with other workers."""
    full_disk: str | None = None
    """A line about the folder's disk if it is full."""

    def speeds(self, record: RunRecord) -> dict[str, float]:
        """Each machine's own samples a second in this run."""
        own = self.pace.own_samples_per_s or {}
        parts = {
            machine: [own[name] for worker in workers if (name := f"{machine}-{worker.number}") in own]
            for machine, workers in record.workers.items()
        }
        return {machine: round(sum(found), 1) for machine, found in parts.items() if found}

    def busy(self, record: RunRecord) -> dict[str, dict[str, Any]]:
        """How busy each machine of this run is, as fractions: its cores, and each of its GPUs."""
        found = {}
        for machine, workers in record.workers.items():
            used = [
                self.pace.use[name] for worker in workers if (name := f"{machine}-{worker.number}") in self.pace.use
            ]
            if used:
                found[machine] = {
                    "cpu": round(used[-1].cpu, 3),
                    "gpus": [gpu.busy for gpu in used[-1].gpus],
                    "gpu_memory_bytes": [gpu.memory_bytes for gpu in used[-1].gpus],
                    "gpu_power_w": [gpu.power_w for gpu in used[-1].gpus],
                }
        return found


NOTHING_READ = RunReading(pace=Pace())


def read_run(record: RunRecord, host: str) -> RunReading:
    """Read the ends of the run's event files and its disk's free space; blocks for as long as the disk does."""
    return RunReading(
        pace=read_pace(record.folder),
        last_step=read_length(record.folder),
        full_disk=full_disk_line(record.folder, host),
    )


class RunReadings:
    """The last reading of every run; `read` blocks, so call it in a thread beside the event loop."""

    def __init__(self, host: str, troubles: Troubles) -> None:
        self._host = host
        self._troubles = troubles
        self.found: dict[str, RunReading] = {}
        self._backends: dict[str, BackendFinder] = {}

    def read(self, records: Iterable[RunRecord]) -> None:
        for record in records:
            with self._troubles.survived(f"run {record.name}"):  # one run's error must not hide the other runs
                reading = read_run(record, self._host)
                # Use is written every few seconds: where steps are short, it is not always among the last events.
                use = {**self.of(record.name).pace.use, **reading.pace.use}
                backend = self._backends.setdefault(record.name, BackendFinder(record.folder)).look()
                self.found[record.name] = replace(reading, pace=replace(reading.pace, use=use), backend=backend)

    def of(self, run: str) -> RunReading:
        return self.found.get(run, NOTHING_READ)
