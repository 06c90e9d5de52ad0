"""Shows a self-test while it goes on, and its table at the end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from potluck.cli.fitting import print_table
from potluck.cli.terminal import Console
from potluck.core.words import counted

if TYPE_CHECKING:
    from potluck.selftest.document import Document
    from potluck.selftest.rows import Row

_STYLES = {"ok": "green", "failed": "bold red", "left out": "yellow"}
_SPARE = ("limit",)


class ChecksShown:
    """A progress bar on stderr in a terminal; elsewhere one line for each check."""

    def __init__(self, progress: Progress | None, console: Console | None) -> None:
        self._progress = progress
        self._console = console
        self._task = None if progress is None else progress.add_task("importing torch", total=None)

    def begin(self, num_checks: int, devices: str) -> None:
        """Say how many checks there are, on which devices."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, total=num_checks)
        self._line(f"{counted(num_checks, 'check')} on {devices}")

    def at(self, check: str, where: str) -> None:
        """Show which check is done now."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=f"{check} on {where}")

    def row(self, row: "Row") -> None:
        """Outside of a terminal, print a line for a finished check."""
        on = f" on {row.machine}" if row.machine else ""
        self._line(f"{row.check}{on}, {row.where}: {row.result} ({row.seconds:.1f} s)")

    def advance(self) -> None:
        """Count one more check as done."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)

    def _line(self, text: str) -> None:
        if self._console is not None and self._progress is None:
            self._console.print(Text(text), soft_wrap=True)


@contextmanager
def showing_checks(*, is_shown: bool) -> Iterator[ChecksShown]:
    """Show progress on stderr inside the block; nothing if not `is_shown`."""
    console = Console(stderr=True)
    if not is_shown:
        yield ChecksShown(None, None)
    elif not console.is_terminal:
        yield ChecksShown(None, console)
    else:
        columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=console, transient=True) as progress:
            yield ChecksShown(progress, console)


def show_rows(document: "Document") -> None:
    """Print the table of all checks, then each failed one with what to type next."""
    console = Console()
    several = len(document.machines) > 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("check", *(("machine",) if several else ()), "where", "result"):
        table.add_column(heading, no_wrap=True)
    table.add_column("number")
    table.add_column("limit", no_wrap=True)
    for row in document.rows:
        number = row.number or row.why if row.result != "left out" else row.why
        table.add_row(
            row.check,
            *((row.machine,) if several else ()),
            row.where,
            Text(row.result, style=_STYLES[row.result]),
            Text(number),
            row.limit,
        )
    print_table(console, table, spare=_SPARE)
    for row in document.rows:
        if row.result == "failed":
            console.print()
            console.print(Text(f"{row.check} on {row.machine}, {row.where}", style="bold"), soft_wrap=True)
            console.print(Text("  failed: ", style="bold red") + Text(row.why, style="default"), soft_wrap=True)
            console.print(Text("     fix: ", style="bold green") + Text(row.fix, style="default"), soft_wrap=True)
    console.print()
