"""potluck leave: take a machine off the roster."""

from typing import Annotated

import typer

from potluck.cli.saying import say


def leave(
    name: Annotated[str | None, typer.Argument(help="The machine; this one by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Ask a machine to leave after its step. This machine may join again as it is; others need the host's line."""
    from potluck.core.environment import read_environment
    from potluck.meeting.client.cluster import ClusterClient
    from potluck.meeting.home import Home

    home = Home(read_environment().home)
    had_agent = home.has_agent()  # before it is asked: it may have left, and ended, when the answer comes
    with ClusterClient(home) as cluster:
        machine = name or cluster.membership.machine
        warning = cluster.leave(machine)
    host, is_this = cluster.membership.host, machine == cluster.membership.machine
    with_line = f"the line that potluck host prints on {host}"
    back = "come back with: potluck join" if is_this else f"to come back it needs {with_line}"
    if is_this and not had_agent:
        home.forget()
        back = f"come back with {with_line}"
    if as_json:
        import json

        print(json.dumps({"machine": machine, "leaves": True, "warning": warning}))
    else:
        say(f"{machine} leaves; {back}")
        if warning:
            say(warning)
