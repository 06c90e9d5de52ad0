"""potluck compare: runs side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.saying import say

if TYPE_CHECKING:
    from potluck.report.view import RunView


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
    from potluck.cli.reading import open_runs
    from potluck.core.errors import ReportError
    from potluck.report.view import read_run

    if len(set(names)) < 2:
        raise ReportError("a comparison needs two runs", fix="name two that `potluck runs` lists")
    with open_runs(list(dict.fromkeys(names)), folder) as folders:
        views = [read_run(found) for found in folders]
        _compare(views, to_loss, to_accuracy, html, as_json=as_json, as_csv=as_csv)


def _compare(
    views: "list[RunView]",
    to_loss: float | None,
    to_accuracy: float | None,
    html: Path | None,
    *,
    as_json: bool,
    as_csv: bool,
) -> None:
    from potluck.report import compare as comparing

    found = comparing.compare(views, target_loss=to_loss, target_accuracy=to_accuracy)
    if html is not None:
        from potluck.core.atomic import write_text
        from potluck.report.comparison_page import render_comparison

        write_text(html, render_comparison(found, views))
        say(f"wrote {html} ({html.stat().st_size:,} bytes)")
    elif as_json:
        import json
        from dataclasses import asdict

        print(json.dumps(asdict(found)))
    elif as_csv:
        say(comparing.to_csv(found).rstrip("\n"))
    else:
        from potluck.cli.story_tables import show_comparison
        from potluck.cli.terminal import Console

        show_comparison(Console(), found)
