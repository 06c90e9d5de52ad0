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
    from potluck.report.runs import list_runs

    runs_dir = folder or read_environment().runs_dir
    rows = list_runs(runs_dir)
    if as_json:
        import json

        from potluck.events.summary import summarise

        print(json.dumps([{**summarise(row.state), "run": row.folder.name, "state": row.status} for row in rows]))
        return
    from rich.text import Text

    from potluck.cli.fitting import print_table
    from potluck.cli.tables import SPARE, runs_table
    from potluck.cli.terminal import Console

    console = Console()
    if rows:
        print_table(console, runs_table(rows), SPARE)
    else:
        from potluck.cli.placing import joined_host

        membership = joined_host(read_environment().home)
        is_elsewhere = membership is not None and membership.host != membership.machine
        console.print(Text(f"no runs in {runs_dir}; start one with: potluck train"), soft_wrap=True)
        if membership is not None and is_elsewhere:
            line = f"runs on several machines are on {membership.host}: potluck status lists them"
            console.print(Text(line), soft_wrap=True)
