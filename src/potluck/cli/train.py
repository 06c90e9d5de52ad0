"""potluck train: train a built-in model on a built-in dataset."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import typer

from potluck.cli.flags import given, takes_flags
from potluck.cli.naming import take_experiment_name
from potluck.cli.saying import warn
from potluck.core.run_options import CommandOptions, TrainOptions

if TYPE_CHECKING:
    from potluck.core.environment import Launch
    from potluck.report.account import Account

_COMMAND = [field.name for field in fields(CommandOptions)]


@takes_flags(TrainOptions, CommandOptions)
def train(**flags: Any) -> None:
    """Train a built-in model, on every machine that has joined. Ctrl-C stops after the step and saves."""
    from potluck.cli.placing import Placement, check_mode, train_together
    from potluck.core.environment import read_environment, read_launch
    from potluck.core.settings import combine, read_settings_file

    settings = given(flags)
    command = CommandOptions(**{name: settings.pop(name) for name in _COMMAND if name in settings})
    check_mode(command.mode)
    layers = [{} if command.config is None else read_settings_file(command.config), settings]
    asked = combine(*layers)
    launch = read_launch(asked.master)
    name = take_experiment_name(asked.experiment_name, is_told=launch.is_seen)
    layers.append({} if name is None else {"experiment_name": name})
    if not command.solo and launch.is_alone:
        code = train_together(layers, read_environment().home, Placement.of(command), command.log_to)
        if code is not None:
            raise typer.Exit(code)
    if command.devices is not None and launch.device is None:
        device = _take_devices(command.devices, asked.device, is_alone=launch.is_alone)
        layers.append({} if device is None else {"device": device})
    _train_here(layers, launch, command.log_to)


def _take_devices(devices: str, device: str | None, *, is_alone: bool) -> str | None:
    """The one device of `--devices`, None for any; several are trained on by processes of their own, until the end."""
    import sys

    from potluck.cli.several_devices import one_device, train_on_each
    from potluck.core.errors import SettingsError
    from potluck.machine.device_list import read_devices

    if device is not None:
        raise SettingsError("both --device and --devices are given", fix="keep one of them")
    if not is_alone:
        return one_device(devices)
    chosen = read_devices(devices)
    if len(chosen) > 1:
        raise typer.Exit(train_on_each(["-m", "potluck", *sys.argv[1:]], chosen, {}))
    return chosen[0]


def _train_here(layers: list[dict[str, Any]], launch: "Launch", log_to: str | None) -> None:
    """Train in this process: alone, or as a worker that a launcher has started."""
    import logging

    from potluck.cli.display import show_training
    from potluck.core.environment import add_variables, read_environment
    from potluck.core.run_folder import RunFolder, free_run_name
    from potluck.core.run_variables import parse_variables
    from potluck.core.settings import check_resumable, resolve
    from potluck.events.state import RunState
    from potluck.events.types import Record
    from potluck.report.outlets import open_outlet

    # Log messages show a dataset's download, the only thing that takes long before the display is up.
    logging.basicConfig(format="%(message)s")
    logging.getLogger("potluck").setLevel(logging.INFO)
    environment = read_environment()
    asked, recorded = resolve(layers, environment.runs_dir)
    add_variables(parse_variables(asked.env))
    if not launch.is_alone and launch.is_seen:
        from potluck.cli.looking import look_here

        look_here(warn)

    def read_account(state: RunState) -> "Account | None":
        from potluck.report.account_file import write_account

        return write_account(RunFolder(environment.runs_dir / state.run))

    with show_training(is_shown=launch.rank == 0, read_account=read_account) as display:
        from potluck.engine.compute.device import choose_device
        from potluck.engine.telling import LinePrinter, MachineTeller, who_shows_what
        from potluck.workloads.profiling import profile_if_wanted
        from potluck.workloads.trainer import complete, train

        settings = complete(asked, data_dir=environment.data_dir, num_workers=launch.expected)
        if recorded is not None:
            check_resumable(recorded, settings, str(settings.experiment_name))
        if settings.experiment_name is None:
            stem = f"{settings.model}-{settings.dataset}"
            settings = settings.but(experiment_name=free_run_name(environment.runs_dir, stem))
        chosen = choose_device(settings.device, launch.local_rank, launch.device)
        profile_if_wanted(settings, environment.home, environment.machine, chosen)
        folder = RunFolder(environment.runs_dir / str(settings.experiment_name))
        own_part = None
        if launch.rank > 0 and launch.is_seen:
            out = LinePrinter(is_script=False)
            out.write(who_shows_what(environment.machine, launch))
            own_part = MachineTeller(folder.path, environment.machine, out)
        with open_outlet(log_to if launch.rank == 0 else None, folder) as outlet:

            def watch(record: Record, state: RunState) -> None:
                display(record, state)
                outlet(record, state)
                if own_part is not None:
                    own_part(record, state)

            train(settings, runs_dir=environment.runs_dir, watch=watch)
