"""potluck run: the user's own training script on every machine that has joined."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli.flags import given, takes_flags
from potluck.core.run_options import ENV_HELP, KEEP_HELP, MACHINES, TUNING_HELP, CommandOptions, ExchangeOptions

if TYPE_CHECKING:
    from potluck.meeting.home import Home


@takes_flags(CommandOptions, ExchangeOptions, without=("config",))
def run(
    script: Annotated[Path, typer.Argument(help="Your script; its folder goes along, but for what git ignores.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments for the script.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="The folder that goes along; the script's own by default.")
    ] = None,
    name: Annotated[str | None, typer.Option("--experiment-name", help="The run's folder on the host.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of that name.")] = False,
    env: Annotated[list[str] | None, typer.Option(help=ENV_HELP, rich_help_panel=MACHINES, show_default=False)] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            help=KEEP_HELP,
            rich_help_panel=MACHINES,
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            help="A folder of this machine that all others get, while they already train; may be given several times.",
            rich_help_panel=MACHINES,
            show_default=False,
        ),
    ] = None,
    data_first: Annotated[
        list[Path] | None,
        typer.Option(
            "--data-first",
            help="As --data, but the script begins when all of it has arrived: for libraries that open files past "
            "Python (safetensors, pyarrow).",
            rich_help_panel=MACHINES,
            show_default=False,
        ),
    ] = None,
    tuning: Annotated[bool, typer.Option("--tuning/--no-tuning", help=TUNING_HELP, rich_help_panel=MACHINES)] = True,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help="The script uses DDP or Accelerate, not Potluck: set RANK, WORLD_SIZE, MASTER_ADDR and so on for it.",
        ),
    ] = False,
    **flags: Any,
) -> None:
    """Run your own training script on every machine that has joined: potluck run train.py --epochs 3.

    Options of potluck run stand before the script, those of the script after it.
    """
    from potluck.cli.exchange_flags import take_exchange
    from potluck.cli.following import follow_run
    from potluck.cli.naming import take_experiment_name
    from potluck.cli.placing import Placement, check_devices_are_here, check_mode, run_solo
    from potluck.cli.plain_solo import run_plain_solo
    from potluck.cli.script_kind import check_kind, check_script
    from potluck.cli.sharing import given_folders, own_folders, share_folders
    from potluck.core.environment import add_variables, read_environment
    from potluck.core.errors import MeetingError
    from potluck.core.machine_names import read_machine_names
    from potluck.core.run_variables import parse_variables
    from potluck.core.words import counted
    from potluck.meeting.client.cluster import ClusterClient
    from potluck.meeting.home import Home
    from potluck.meeting.transfer.bundle import pack
    from potluck.meeting.transfer.packages import imported_packages, requirements
    from potluck.meeting.wire import RunTask
    from potluck.report.outlets import check_outlet

    exchange = take_exchange(flags, is_plain=plain)
    command = CommandOptions(**given(flags))
    check_outlet(command.log_to)
    check_mode(command.mode)
    name = take_experiment_name(name, has_folder=not (plain and command.solo))
    check_script(script)
    parse_variables(variables := [*(env or []), *([] if tuning else ["POTLUCK_TUNING=0"])])
    kept = read_machine_names(keep or [], "--keep")
    packed = (folder or script.parent).absolute()
    check_kind(packed, script, is_plain=plain, resume=resume, log_to=command.log_to)
    _check_keep(keep, is_plain=plain, is_solo=command.solo)
    placement = Placement.of(command)
    folders = given_folders(data, data_first)
    if command.solo:
        add_variables(own_folders(folders))
        if folder is not None or command.log_to is not None or placement.names_machines:
            raise MeetingError(
                "--solo trains on this machine alone, in this folder",
                fix="leave --folder, --log-to, --not-here, --machines and --direct out, or leave --solo out",
            )
        if plain:
            raise typer.Exit(run_plain_solo(script, arguments or [], variables, devices=command.devices))
        run_solo(script, arguments or [], name, variables, exchange, resume=resume, devices=command.devices)
    check_devices_are_here(command.devices)
    home = Home(read_environment().home)
    _check_joined(home, script, is_plain=plain)
    with ClusterClient(home) as cluster:
        shared = share_folders(cluster, home, folders, packed, print)
        bundle = pack(packed, script.absolute(), without=tuple(folders))
        cluster.send_bundle(bundle)
        task = RunTask(
            bundle=bundle.hash,
            entry=bundle.entry,
            arguments=arguments or [],
            keep=kept,
            exchange=exchange,
            is_plain=plain,
            requirements=requirements(imported_packages(packed, Path(bundle.entry))),
            env=variables,
            data=shared,
        )
        started = cluster.start(placement.request(task, cluster.membership.machine, name=name, resume=resume))
        print(
            f"{script.name} and its folder: {counted(bundle.num_files, 'file')}, "
            f"{bundle.size_bytes / 1e3:,.1f} kB, "
            f"bundle {bundle.hash[:12]}"
        )
        raise typer.Exit(follow_run(cluster, started, command.log_to))


def _check_keep(keep: list[str] | None, *, is_plain: bool, is_solo: bool) -> None:
    from potluck.core.errors import MeetingError

    if keep and (is_plain or is_solo):
        raise MeetingError(
            f"--keep has no meaning with {'--plain, where every machine takes part' if is_plain else '--solo'}",
            fix="leave --keep out",
        )


def _check_joined(home: "Home", script: Path, *, is_plain: bool) -> None:
    from potluck.core.errors import MeetingError
    from potluck.core.shell_words import quote

    if home.membership() is None:
        raise MeetingError(
            "this machine has not joined a host, so there are no other machines to run the script on",
            fix=f"run it on this machine alone: potluck run {'--plain ' * is_plain}--solo {quote(script)}; "
            "or join first: potluck join LINE, with the line that potluck host prints on another machine",
        )
