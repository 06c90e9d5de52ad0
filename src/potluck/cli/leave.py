"""potluck leave: take a machine off the roster."""

from typing import Annotated

import typer


def leave(
    name: Annotated[str | None, typer.Argument(help="The machine; this one by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Ask a machine to leave after its step, and forget it; a machine that is away is forgotten at once."""
    from potluck.core.environment import read_environment
    from potluck.meeting.cluster import Cluster
    from potluck.meeting.home import Home

    home = Home(read_environment().home)
    with Cluster(home) as cluster:
        machine = name or cluster.membership.machine
        cluster.leave(machine)
    if machine == cluster.membership.machine and not home.has_agent():
        home.forget()
    if as_json:
        import json

        print(json.dumps({"machine": machine, "leaves": True}))
    else:
        print(f"{machine} leaves")
