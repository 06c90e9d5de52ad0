"""potluck run: the user's own training script on every machine that has joined."""

from pathlib import Path
from typing import Annotated

import typer


def run(
    script: Annotated[Path, typer.Argument(help="Your script; its folder goes along, but for what git ignores.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments for the script.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="The folder that goes along; the script's own by default.")
    ] = None,
    name: Annotated[str | None, typer.Option("--experiment-name", help="The run's folder on the host.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of that name.")] = False,
    not_here: Annotated[bool, typer.Option("--not-here", help="On the other machines, not on this one.")] = False,
    machines: Annotated[str | None, typer.Option(help="Only these, by name: rosa,lily.")] = None,
    direct: Annotated[
        bool,
        typer.Option("--direct", help="Gradients go in the open, not through the gates: for fast networks you trust."),
    ] = False,
    log_to: Annotated[
        str | None, typer.Option("--log-to", help="Also tensorboard or mlflow: one run, written here, of all machines.")
    ] = None,
) -> None:
    """Run your own training script on every machine that has joined: potluck run train.py --epochs 3."""
    from potluck.cli.following import follow_run
    from potluck.cli.placing import Placement
    from potluck.core.environment import read_environment
    from potluck.core.errors import MeetingError
    from potluck.meeting.bundle import pack
    from potluck.meeting.cluster import Cluster
    from potluck.meeting.home import Home
    from potluck.meeting.wire import Task
    from potluck.report.outlets import check_outlet

    check_outlet(log_to)
    if not script.is_file():
        raise MeetingError(f"there is no script {script}", fix="check the path after potluck run")
    with Cluster(Home(read_environment().home)) as cluster:
        bundle = pack((folder or script.parent).absolute(), script.absolute())
        cluster.send_bundle(bundle)
        placement = Placement(machines=machines, not_here=not_here, is_direct=direct)
        task = Task(bundle=bundle.hash, entry=bundle.entry, arguments=arguments or [])
        started = cluster.start(placement.request(task, cluster.membership.machine, name=name, resume=resume))
        print(
            f"{script.name} and its folder: {bundle.num_files} file{'s' * (bundle.num_files != 1)}, "
            f"{bundle.size_bytes / 1e3:,.1f} kB, "
            f"bundle {bundle.hash[:12]}"
        )
        raise typer.Exit(follow_run(cluster, started, log_to))
