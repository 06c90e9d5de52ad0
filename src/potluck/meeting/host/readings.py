"""What the runs' folders say, read outside of every decision: the host's state takes the values that were read."""

from collections.abc import Iterable
from dataclasses import dataclass

from potluck.core.disk import full_disk_line
from potluck.meeting.host.runs import RunRecord
from potluck.meeting.host.troubles import Troubles
from potluck.meeting.transfer.run_tail import Pace, read_length, read_pace


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReading:
    """A run's folder at one moment."""

    pace: Pace
    last_step: int = 0
    full_disk: str | None = None
    """A line about the disk under the folder, if that takes nothing more."""

    def speeds(self, record: RunRecord) -> dict[str, float]:
        """What each machine does of the run's batches, in samples a second."""
        own = self.pace.own_samples_per_s or {}
        parts = {
            machine: [own[name] for worker in workers if (name := f"{machine}-{worker.number}") in own]
            for machine, workers in record.workers.items()
        }
        return {machine: round(sum(found), 1) for machine, found in parts.items() if found}


NOTHING_READ = RunReading(pace=Pace())


def read_run(record: RunRecord, host: str) -> RunReading:
    """Look at the ends of the run's event files, which takes as long as the disk does."""
    return RunReading(
        pace=read_pace(record.folder),
        last_step=read_length(record.folder),
        full_disk=full_disk_line(record.folder, host),
    )


class RunReadings:
    """The last reading of every run; `read` is for a thread beside the event loop."""

    def __init__(self, host: str, troubles: Troubles) -> None:
        self._host = host
        self._troubles = troubles
        self.found: dict[str, RunReading] = {}

    def read(self, records: Iterable[RunRecord]) -> None:
        for record in records:
            with self._troubles.survived(f"run {record.name}"):  # one run's trouble is not another's
                self.found[record.name] = read_run(record, self._host)

    def of(self, run: str) -> RunReading:
        return self.found.get(run, NOTHING_READ)
