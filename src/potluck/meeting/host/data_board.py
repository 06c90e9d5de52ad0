"""What the host knows of runs' data: which machine has how much of it, and where others dial that machine."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from potluck.meeting.host.runs import RunRecord
from potluck.meeting.transfer.catalogues import KeptCatalogues
from potluck.meeting.wire import DataReport, SharingOrder


class DataBoard:
    """The last report of each machine, by run and machine, in memory: machines report again. Catalogues are on disk."""

    def __init__(self, folder: Path) -> None:
        self.catalogues = KeptCatalogues(folder)
        self._reports: dict[str, dict[str, DataReport]] = {}

    def take(self, machine: str, reports: Iterable[DataReport]) -> bool:
        """Note a machine's reports; returns whether a port is new, so that other machines have to know."""
        is_news = False
        told = {report.run_id: report for report in reports}
        for run_id in self._reports.keys() | told.keys():
            before = self._reports.setdefault(run_id, {}).pop(machine, None)
            if run_id in told:
                self._reports[run_id][machine] = told[run_id]
            now = told.get(run_id)
            is_news |= (before and before.port) != (now and now.port)
        return is_news

    def forget(self, runs: Iterable[str]) -> None:
        """Drop the reports of all runs but these."""
        kept = set(runs)
        self._reports = {run_id: reports for run_id, reports in self._reports.items() if run_id in kept}

    def order(self, record: RunRecord) -> SharingOrder:
        """The run's folders and the machines to get them from."""
        reports = self._reports.get(record.id, {})
        return SharingOrder(
            run=record.name,
            run_id=record.id,
            folders=record.task.data,
            peers={machine: report.port for machine, report in sorted(reports.items())},
        )

    def show(self, record: RunRecord) -> dict[str, Any]:
        """The run's folders, and how much of them each machine has, as plain data."""
        reports = self._reports.get(record.id, {})
        return {
            "folders": [
                {"name": one.name, "source": one.source, "size_bytes": one.size_bytes, "num_files": one.num_files}
                for one in record.task.data
            ],
            "machines": {
                machine: {"have_bytes": report.have_bytes, "total_bytes": report.total_bytes, "trouble": report.trouble}
                for machine, report in sorted(reports.items())
            },
        }


def has_part(record: RunRecord, machine: str) -> bool:
    """Whether a machine has or gets the run's data: it trains in the run, or the data is its own."""
    return machine in record.workers or any(one.source == machine for one in record.task.data)
