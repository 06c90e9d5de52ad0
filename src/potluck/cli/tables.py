"""The table that `potluck runs` prints."""

import time

from rich.table import Table

from potluck.report.runs import RunRow
from potluck.report.words import percent

SPARE = ("dataset", "model", "updated", "accuracy")
"""Columns that are dropped on a narrow terminal, in this order."""

_STYLES = {
    "finished": "green",
    "running": "bold cyan",
    "failed": "red",
    "diverged": "red",
    "interrupted": "yellow",
    "damaged": "red",
    "stopped": "yellow",
}


def runs_table(rows: list[RunRow]) -> Table:
    """A table with one row for each run."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for heading in ("step", "last loss", "accuracy", "samples/s", "updated"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("model", "dataset"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        state = row.state
        accuracy = state.scores.get("held_out_accuracy")
        table.add_row(
            row.folder.name,
            f"[{_STYLES[row.status]}]{row.status}[/]{', simulated' if row.is_simulated else ''}",
            _steps(row),
            "" if state.loss is None else f"{state.loss:.4f}",
            "" if accuracy is None else percent(accuracy),
            "" if row.is_plain else f"{state.samples_per_s:,.0f}",
            ago(time.time() - state.updated_at) if state.updated_at else "",
            *_workload(row),
        )
    return table


def _steps(row: RunRow) -> str:
    if row.is_plain:
        return "plain"
    return f"{row.state.step}/{row.state.last_step}" if row.state.last_step else str(row.state.step)


def _workload(row: RunRow) -> tuple[str, str]:
    return str(row.settings.get("model", row.settings.get("script", ""))), str(row.settings.get("dataset", ""))


def ago(seconds: float) -> str:
    """A length of time in one unit, rounded down."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{max(0, int(seconds))} s ago"
