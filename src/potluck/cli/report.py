"""potluck report: result, account, machines, faults and plans of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.saying import say

if TYPE_CHECKING:
    from potluck.report.view import RunView


def report(
    name: Annotated[str | None, typer.Argument(help="The run; the newest by default.")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write one HTML file with plots inside, to send to somebody.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    folder: Annotated[Path | None, typer.Option("--folder", help="Where the runs are; ./experiments.")] = None,
) -> None:
    """Say what a run came to: result, where the time went, machines, faults, plans. Works while it trains."""
    from potluck.cli.reading import open_runs
    from potluck.report.view import read_run

    with open_runs([] if name is None else [name], folder) as [found]:
        _report(read_run(found), html, as_json=as_json)


def _report(view: "RunView", html: Path | None, *, as_json: bool) -> None:
    if html is not None:
        from potluck.core.atomic import write_text
        from potluck.report.page import render

        write_text(html, render(view))
        say(f"wrote {html} ({html.stat().st_size:,} bytes)")
        return
    from potluck.report.story import tell

    if as_json:
        import json
        from dataclasses import asdict

        story = tell(view)
        account = None if story.account is None else story.account.as_data()
        print(json.dumps({**asdict(story), "account": account}))
        return
    from potluck.cli.story_tables import show_story
    from potluck.cli.terminal import Console

    show_story(Console(), tell(view))
