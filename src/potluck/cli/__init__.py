"""The `potluck` command: one file a command, no logic. Nothing heavy is imported before a command runs."""

import sys

import typer

from potluck.cli.attach import attach
from potluck.cli.compare import compare
from potluck.cli.dashboard import dashboard
from potluck.cli.doctor import doctor
from potluck.cli.elsewhere import check_trains_here
from potluck.cli.explain import explain
from potluck.cli.flags import dashed
from potluck.cli.handover import handover
from potluck.cli.host import host
from potluck.cli.join import join
from potluck.cli.leave import leave
from potluck.cli.logs import logs
from potluck.cli.plan import plan
from potluck.cli.profile import profile
from potluck.cli.report import report
from potluck.cli.run import run
from potluck.cli.runs import runs
from potluck.cli.selftest import selftest
from potluck.cli.service import service
from potluck.cli.simulate import simulate
from potluck.cli.status import status
from potluck.cli.stop import stop
from potluck.cli.train import train
from potluck.core.errors import PotluckError
from potluck.core.version import __version__

app = typer.Typer(
    name="potluck",
    help="Train one PyTorch model on all the machines you have.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"token_normalize_func": dashed},
)
app.command()(train)
app.command(context_settings={"allow_interspersed_args": False})(run)  # options after the script belong to the script
for command in (
    *(host, join, status, attach, logs, stop, leave, handover, runs, report, compare),
    *(service, dashboard, doctor, selftest, explain, profile, plan, simulate),
):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"potluck {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", help="Print the version and leave.", callback=_print_version, is_eager=True
    ),
) -> None:
    """Train one PyTorch model on all the machines you have."""
    check_trains_here(context.invoked_subcommand)


def _print_error(error: PotluckError) -> None:
    from rich.text import Text

    from potluck.cli.terminal import Console

    console = Console(stderr=True, soft_wrap=True)
    console.print(Text("error: ", style="bold red") + Text(str(error.args[0]), style="default"))
    console.print(Text("  fix: ", style="bold green") + Text(error.fix, style="default"))


def main() -> None:
    """Run the command line; an error that a user can mend is printed once, with its fix."""
    try:
        app()
    except PotluckError as error:
        _print_error(error)
        sys.exit(1)
    except Exception as error:  # noqa: BLE001  its traceback is printed, then its cause and fix if they are known
        import traceback

        from potluck.core.disk import as_disk_error

        disk = as_disk_error(error)
        if disk is not None:
            _print_error(disk)
            sys.exit(1)

        from potluck.cli.findings import print_known

        traceback.print_exc()
        print_known(traceback.format_exc())
        sys.exit(1)
