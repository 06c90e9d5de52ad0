"""What one worker process does: train a built-in model, or run the user's script, as the environment places it."""

import runpy
import sys
from pathlib import Path
from typing import Any

from potluck.core.environment import read_environment, read_launch
from potluck.core.errors import PotluckError
from potluck.meeting.workers import REFUSED


def work(task: dict[str, Any], folder: Path) -> None:
    """The whole life of a worker. An error that a person can mend is printed, and not tried again."""
    try:
        if task.get("settings") is not None:
            _train(task["settings"])
        else:
            _run_script(folder / task["entry"], task["arguments"])
    except PotluckError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(REFUSED)


def _train(values: dict[str, Any]) -> None:
    from potluck.core.settings import make_settings  # noqa: PLC0415
    from potluck.engine.device import choose_device  # noqa: PLC0415
    from potluck.workloads.profiling import profile_if_wanted  # noqa: PLC0415
    from potluck.workloads.trainer import train  # noqa: PLC0415

    environment = read_environment()
    settings = make_settings(values, source="the host's orders")
    chosen = {"data_dir": settings.data_dir or environment.data_dir, "device": read_launch().device}
    settings = settings.model_copy(update=chosen)
    profile_if_wanted(settings, environment.home, environment.machine, choose_device(settings.device))
    # Notices are in the events, which everybody reads: nothing is left to say on the terminal of a worker.
    train(settings, runs_dir=environment.runs_dir, watch=lambda *_: None)


def _run_script(script: Path, arguments: list[str]) -> None:
    """As `python script arguments...` would."""
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
