"""potluck status: who is here, what runs, how fast."""

from typing import Annotated

import typer


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Show the machines that have joined, and what they do."""
    from potluck.core.environment import read_environment
    from potluck.meeting.client.cluster import ClusterClient
    from potluck.meeting.home import Home

    with ClusterClient(Home(read_environment().home)) as cluster:
        found = cluster.status()
    if as_json:
        import json

        print(json.dumps(found))
        return
    from rich.text import Text

    from potluck.cli.fitting import print_table
    from potluck.cli.roster_display import SPARE, machines_table, runs_lines, succession_lines
    from potluck.cli.terminal import Console
    from potluck.meeting.host.pairs import link_lines

    console = Console()
    print_table(console, machines_table(found), SPARE)
    for line in [*succession_lines(found), *link_lines(found)]:
        console.print(Text(line), soft_wrap=True)
    console.print(runs_lines(found), soft_wrap=True)
