"""potluck stop: end a run on all machines, after its step."""

from typing import Annotated

import typer

from potluck.cli.saying import say


def stop(
    run: Annotated[str | None, typer.Argument(help="The run's name; needed only if several run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Stop a run after the current step; its state is saved, and --resume goes on. A plain script gets SIGINT."""
    from potluck.core.environment import read_environment
    from potluck.meeting.client.cluster import ClusterClient
    from potluck.meeting.home import Home

    with ClusterClient(Home(read_environment().home)) as cluster:
        stopped = cluster.stop(run or cluster.only_run())
    if as_json:
        import json

        print(json.dumps(stopped))
    else:
        at = "" if stopped["is_plain"] else f" at step {stopped['step']}"
        say(f"run {stopped['run']} is {stopped['state']}{at}")
        if stopped.get("warning"):
            say(stopped["warning"])
