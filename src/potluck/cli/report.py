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
    if view.is_plain:
        _report_plain(view, html, as_json=as_json)
        return
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


def _report_plain(view: "RunView", html: Path | None, *, as_json: bool) -> None:
    """Print what is known from outside of a run whose script does not use Potluck."""
    from potluck.report.story import repeat_lines

    name, account = view.folder.name, view.plain_account()
    if html is not None:
        from potluck.core.errors import SettingsError

        raise SettingsError(
            f"run {name} is plain: there are no steps to plot", fix=f"print what there is: potluck report {name}"
        )
    script, repeat = str(view.settings.get("script", "")), repeat_lines(view)
    if as_json:
        import json

        told = {"name": name, "status": view.status, "message": view.plain_cause, "what": {"script": script}}
        print(json.dumps({**told, "plain": account.as_data(), "repeat": repeat}))
        return
    from potluck.cli.plain_summary import show_plain
    from potluck.cli.terminal import Console

    show_plain(
        Console(),
        name,
        view.status,
        account,
        what=f"{script}, a script that does not use Potluck: its steps are not known",
        message=view.plain_cause,
        repeat=repeat,
    )
