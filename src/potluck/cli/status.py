"""potluck status: who is here, what runs, how fast."""

from typing import Annotated

import typer


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Show the machines that have joined, and what they do."""
    from potluck.core.environment import read_environment
    from potluck.meeting.cluster import Cluster
    from potluck.meeting.home import Home

    with Cluster(Home(read_environment().home)) as cluster:
        found = cluster.status()
    if as_json:
        import json

        print(json.dumps(found))
        return
    from rich.console import Console
    from rich.text import Text

    from potluck.cli.roster_display import machines_table, runs_lines
    from potluck.meeting.pairs import link_lines

    console = Console()
    console.print(machines_table(found))
    for line in link_lines(found):
        console.print(Text(line), soft_wrap=True)
    console.print(runs_lines(found), soft_wrap=True)
