"""potluck runs: the runs in a folder."""

from pathlib import Path
from typing import Annotated

import typer


def runs(
    folder: Annotated[Path | None, typer.Argument(help="Where the runs are; ./experiments by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list instead of a table.")] = False,
) -> None:
    """List the runs in a folder, the newest last."""
    from potluck.core.environment import read_environment
    from potluck.events.runs import list_runs

    runs_dir = folder or read_environment().runs_dir
    rows = list_runs(runs_dir)
    if as_json:
        import json

        from potluck.events.summary import summarise

        print(json.dumps([{**summarise(row.state), "run": row.folder.name, "state": row.status} for row in rows]))
        return
    from rich.console import Console

    from potluck.cli.tables import runs_table

    console = Console()
    console.print(runs_table(rows, console.width) if rows else f"no runs in {runs_dir}; start one with: potluck train")
