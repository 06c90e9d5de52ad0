"""potluck logs: what a run's workers print, on all machines, as they print it."""

from typing import Annotated

import typer


def logs(
    run: Annotated[
        str | None, typer.Argument(help="The run's name; the one in progress, else the newest, by default.")
    ] = None,
    machine: Annotated[
        list[str] | None, typer.Option("--machine", help="Only this machine's lines; as often as needed.")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", help="Earlier lines of each worker to begin with.", min=0)
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Go on until the run ends, or print and leave.")
    ] = True,
) -> None:
    """Follow what the workers of a run print, each line with its machine's name. Ctrl-C leaves; the run goes on."""
    from potluck.cli.log_lines import print_logs
    from potluck.core.environment import read_environment
    from potluck.meeting.client.cluster import ClusterClient
    from potluck.meeting.home import Home

    with ClusterClient(Home(read_environment().home)) as cluster:
        print_logs(cluster, cluster.find_run(run), machines=machine or [], num_lines=lines, follows=follow)
