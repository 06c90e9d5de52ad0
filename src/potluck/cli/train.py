"""potluck train: train a built-in model on a built-in dataset."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import typer

from potluck.cli.flags import given, takes_flags
from potluck.cli.saying import warn
from potluck.core.run_options import CommandOptions, TrainOptions

if TYPE_CHECKING:
    from potluck.report.account import Account

_COMMAND = [field.name for field in fields(CommandOptions)]


@takes_flags(TrainOptions, CommandOptions)
def train(**flags: Any) -> None:
    """Train a built-in model, on every machine that has joined. Ctrl-C stops after the step and saves."""
    from potluck.core.environment import read_environment, read_launch
    from potluck.core.settings import read_settings_file

    settings = given(flags)
    command = CommandOptions(**{name: settings.pop(name) for name in _COMMAND if name in settings})
    layers = [{} if command.config is None else read_settings_file(command.config), settings]
    if not command.solo and read_launch().is_alone:
        from potluck.cli.placing import Placement, train_together

        code = train_together(layers, read_environment().home, Placement.of(command), command.log_to)
        if code is not None:
            raise typer.Exit(code)
    _train_here(layers, command.log_to)


def _train_here(layers: list[dict[str, Any]], log_to: str | None) -> None:
    """Train in this process: alone, or as a worker that a launcher has started."""
    import logging

    from potluck.cli.display import show_training
    from potluck.core.environment import read_environment, read_launch
    from potluck.core.run_folder import RunFolder, free_run_name
    from potluck.core.settings import check_resumable, resolve
    from potluck.events.state import RunState
    from potluck.events.types import Record
    from potluck.report.outlets import open_outlet

    # Log messages show a dataset's download, the only thing that takes long before the display is up.
    logging.basicConfig(format="%(message)s")
    logging.getLogger("potluck").setLevel(logging.INFO)
    environment, launch = read_environment(), read_launch()
    asked, recorded = resolve(layers, environment.runs_dir)
    if not launch.is_alone:
        from potluck.cli.looking import look_here

        look_here(warn)

    def read_account(state: RunState) -> "Account | None":
        from potluck.report.account_file import write_account

        return write_account(RunFolder(environment.runs_dir / state.run))

    with show_training(is_shown=launch.rank == 0, read_account=read_account) as display:
        from potluck.engine.compute.device import choose_device
        from potluck.workloads.profiling import profile_if_wanted
        from potluck.workloads.trainer import complete, train

        settings = complete(asked, data_dir=environment.data_dir, num_workers=launch.expected)
        if recorded is not None:
            check_resumable(recorded, settings, str(settings.experiment_name))
        if settings.experiment_name is None:
            stem = f"{settings.model}-{settings.dataset}"
            settings = settings.but(experiment_name=free_run_name(environment.runs_dir, stem))
        chosen = choose_device(settings.device, launch.local_rank)
        profile_if_wanted(settings, environment.home, environment.machine, chosen)
        folder = RunFolder(environment.runs_dir / str(settings.experiment_name))
        with open_outlet(log_to if launch.rank == 0 else None, folder) as outlet:

            def watch(record: Record, state: RunState) -> None:
                display(record, state)
                outlet(record, state)

            train(settings, runs_dir=environment.runs_dir, watch=watch)
