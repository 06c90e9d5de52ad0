"""potluck attach: the display of a run, from any joined machine."""

from typing import Annotated

import typer


def attach(
    run: Annotated[
        str | None, typer.Argument(help="The run's name; the one in progress, else the newest, by default.")
    ] = None,
) -> None:
    """Show a run as the terminal that started it does. Ctrl-C leaves the display; the run goes on."""
    from potluck.cli.following import attach_run
    from potluck.core.environment import read_environment
    from potluck.meeting.client.cluster import ClusterClient
    from potluck.meeting.home import Home

    with ClusterClient(Home(read_environment().home)) as cluster:
        code = attach_run(cluster, cluster.find_run(run))
    raise typer.Exit(code)
