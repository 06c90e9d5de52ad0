"""potluck compare: runs side by side."""

from pathlib import Path
from typing import Annotated

import typer


def compare(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Two runs or more.")],
    to_loss: Annotated[float | None, typer.Option("--to-loss", help="Time until this training loss.")] = None,
    to_accuracy: Annotated[
        float | None, typer.Option("--to-accuracy", help="Time until this accuracy, 0 to 1.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write one HTML file with plots inside.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead.")] = False,
    folder: Annotated[Path | None, typer.Option("--folder", help="Where the runs are; ./experiments.")] = None,
) -> None:
    """Put runs side by side: time to a loss or accuracy, throughput, efficiency, cost of faults, settings."""
    from potluck.core.environment import read_environment
    from potluck.core.errors import ReportError
    from potluck.core.run_folder import find_run_folder
    from potluck.report import compare as comparing
    from potluck.report.view import read_run

    runs_dir = folder or read_environment().runs_dir
    if len(set(names)) < 2:
        raise ReportError("a comparison needs two runs", fix="name two that `potluck runs` lists")
    views = [read_run(find_run_folder(runs_dir, name)) for name in dict.fromkeys(names)]
    found = comparing.compare(views, target_loss=to_loss, target_accuracy=to_accuracy)
    if html is not None:
        from potluck.core.atomic import write_text
        from potluck.report.comparison_page import render_comparison

        write_text(html, render_comparison(found, views))
        print(f"wrote {html} ({html.stat().st_size:,} bytes)")
    elif as_json:
        import json
        from dataclasses import asdict

        print(json.dumps(asdict(found)))
    elif as_csv:
        print(comparing.to_csv(found), end="")
    else:
        from rich.console import Console

        from potluck.cli.story_tables import show_comparison

        show_comparison(Console(), found)
