"""Makes a run's settings and folder on the host, from a request."""

from pathlib import Path

import yaml

from potluck.core.atomic import write_text
from potluck.core.checkpoint_names import checkpoint_files
from potluck.core.errors import MeetingError
from potluck.core.exchange_options import check_exchange_options
from potluck.core.run_folder import RunFolder, create_run_folder, find_run_folder, free_run_name
from potluck.core.settings import (
    check_resumable,
    recorded_exchange,
    recorded_keep,
    recorded_variables,
    resolve,
    settings_to_record,
)
from potluck.core.yaml_file import read_yaml
from potluck.meeting.transfer.states import ArrivedStates
from potluck.meeting.wire import RunRequest, RunTask


def prepare_training(
    request: RunRequest, runs_dir: Path, num_workers: int, states: ArrivedStates
) -> tuple[RunFolder, RunTask, bool]:
    """For a built-in model: complete the settings, create or find the folder; the bool is True for a resumed run."""
    from potluck.workloads.trainer import complete  # noqa: PLC0415  imports torch

    assert request.task.settings is not None
    asked, recorded = resolve([request.task.settings], runs_dir)
    if asked.resume_from is not None and request.state is None:
        raise MeetingError(
            "--resume-from names a file that the other machines do not have",
            fix="install the host's version of potluck on the machine that starts the run, or train there with --solo",
        )
    if request.state is not None:
        states.check(request.state)
    # Each machine chooses where it keeps data, unless the request chose for all.
    settings = complete(asked, data_dir=Path("data"), num_workers=num_workers).but(data_dir=asked.data_dir)
    if recorded is not None:
        folder = find_run_folder(runs_dir, str(settings.experiment_name))
        check_resumable(recorded, settings, folder.name)
    else:
        name = settings.experiment_name or free_run_name(runs_dir, f"{settings.model}-{settings.dataset}")
        folder = create_run_folder(runs_dir, name)
    if request.state is not None and not checkpoint_files(folder.checkpoints_dir):  # a resumed run has newer ones
        states.place(request.state, folder)
    values = settings_to_record(settings)
    _record(folder, values)
    kept = {**values, "resume": settings.resume}
    return folder, RunTask(settings=kept), recorded is not None


def prepare_script(request: RunRequest, runs_dir: Path) -> tuple[RunFolder, RunTask, bool]:
    """For a user's script: create or find the folder, which records the script's name and arguments."""
    task = request.task
    check_exchange_options(task.exchange)
    if request.resume:
        if request.name is None:
            raise MeetingError("--resume needs to know which run", fix="name it: --experiment-name NAME")
        folder = find_run_folder(runs_dir, request.name, to_resume=True)
        given = {key: words for key, words in (("env", task.env), ("keep", task.keep)) if words}
        recorded = {"env": recorded_variables(folder), "keep": recorded_keep(folder)}
        exchange = {**recorded_exchange(folder), **task.exchange}
        if given or task.exchange:  # for the next resume
            known = read_yaml(folder.settings_file)
            before = known if isinstance(known, dict) else script_settings(task)
            _record(folder, {**before, **given, **({"command_options": exchange} if exchange else {})})
        return folder, task.model_copy(update={**recorded, **given, "exchange": exchange}), True
    folder = create_run_folder(runs_dir, request.name or free_run_name(runs_dir, Path(task.entry).stem))
    _record(folder, script_settings(task))
    return folder, task, False


def script_settings(task: RunTask) -> dict[str, object]:
    """What run.yaml holds for a script."""
    kept: dict[str, object] = {"script": task.entry, "arguments": task.arguments, "bundle": task.bundle}
    more = {"env": task.env, "keep": task.keep, "command_options": task.exchange, "plain": task.is_plain}
    return kept | {key: value for key, value in more.items() if value}


def _record(folder: RunFolder, values: dict[str, object]) -> None:
    write_text(folder.settings_file, yaml.safe_dump(values, sort_keys=False))
