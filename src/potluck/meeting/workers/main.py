"""Runs in the worker: trains a built-in model or runs the user's script; environment variables give its place."""

import runpy
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from potluck.core.disk import as_disk_error, is_full
from potluck.core.environment import read_environment, read_launch
from potluck.core.errors import PotluckError
from potluck.machine.hardware import quota_threads
from potluck.meeting.workers.messages import BuiltInTask, PlainTask, ScriptTask
from potluck.sharing.folders import data_dir, read_folders, watch_folders

TRY_LATER = 75  # sysexits.h's EX_TEMPFAIL: the disk is full, and may have space again in a while
REFUSED = 78  # sysexits.h's EX_CONFIG: a person has to fix something, and the printed error says what


def work(task: BuiltInTask | ScriptTask | PlainTask, folder: Path) -> None:
    """Execute a worker's task. A PotluckError or disk error is printed, and the exit code is TRY_LATER or REFUSED."""
    try:
        watch_folders()
        if isinstance(task, BuiltInTask):
            _train(task.settings)
        elif isinstance(task, PlainTask):
            from potluck.engine.group.stock import stock_groups  # noqa: PLC0415

            with stock_groups(read_launch(quota=quota_threads())):
                _run_script(folder / task.entry, task.arguments)
        else:
            _run_script(folder / task.entry, task.arguments)
    except PotluckError as error:
        _say(f"{error}\n")
        sys.exit(TRY_LATER if is_full(error) else REFUSED)
    except OSError as error:
        disk = as_disk_error(error)
        if disk is None:
            raise
        _say(f"{disk}\n")
        sys.exit(TRY_LATER if is_full(error) else REFUSED)


def _say(text: str) -> None:
    with suppress(OSError):  # the log may be on the disk that is full
        sys.stderr.write(text)


def _train(values: dict[str, Any]) -> None:
    from potluck.core.settings import make_settings  # noqa: PLC0415
    from potluck.engine.compute.device import choose_device  # noqa: PLC0415
    from potluck.workloads.profiling import profile_if_wanted  # noqa: PLC0415
    from potluck.workloads.trainer import train  # noqa: PLC0415

    environment = read_environment()
    settings = make_settings(values, source="the host's orders")
    shared = data_dir() if read_folders() else None
    settings = settings.but(data_dir=shared or settings.data_dir or environment.data_dir, device=read_launch().device)
    profile_if_wanted(settings, environment.home, environment.machine, choose_device(settings.device))
    # Notices are written as events, which every display reads: a worker itself need not print them.
    train(settings, runs_dir=environment.runs_dir, watch=lambda *_: None)


def _run_script(script: Path, arguments: list[str]) -> None:
    """Run the script as `python script arguments...` would."""
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
