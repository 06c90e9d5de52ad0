"""potluck handover: make another machine the host."""

from typing import Annotated

import typer

from potluck.cli.saying import say


def handover(
    name: Annotated[str, typer.Argument(help="The machine that becomes the host.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make another machine the host, between two steps. Runs go on; the host of before becomes an ordinary machine."""
    from potluck.core.environment import read_environment
    from potluck.meeting.client.cluster import ClusterClient
    from potluck.meeting.home import Home

    with ClusterClient(Home(read_environment().home)) as cluster:
        before = cluster.membership.host
        cluster.hand_over(name)
    if as_json:
        import json

        print(json.dumps({"host": name, "before": before}))
    else:
        say(f"{name} is the host now; {before} works for it")
