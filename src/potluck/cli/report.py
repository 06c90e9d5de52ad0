"""potluck report: what a run came to."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    name: Annotated[str | None, typer.Argument(help="The run; the newest by default.")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write one HTML file with plots inside, to send to somebody.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    folder: Annotated[Path | None, typer.Option("--folder", help="Where the runs are; ./experiments.")] = None,
) -> None:
    """Say what a run came to: result, where the time went, machines, faults, plans. Works while it trains."""
    from potluck.core.environment import read_environment
    from potluck.core.run_folder import find_run_folder, newest_run_folder
    from potluck.report.view import read_run

    runs_dir = folder or read_environment().runs_dir
    view = read_run(find_run_folder(runs_dir, name) if name else newest_run_folder(runs_dir))
    if html is not None:
        from potluck.core.atomic import write_text
        from potluck.report.page import render

        write_text(html, render(view))
        print(f"wrote {html} ({html.stat().st_size:,} bytes)")
        return
    from potluck.report.story import tell

    if as_json:
        import json
        from dataclasses import asdict

        story = tell(view)
        account = None if story.account is None else story.account.as_data()
        print(json.dumps({**asdict(story), "account": account}))
        return
    from rich.console import Console

    from potluck.cli.story_tables import show_story

    show_story(Console(), tell(view))
