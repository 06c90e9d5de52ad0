"""What one worker process does: train a built-in model, or run the user's script, as the environment places it."""

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

from potluck.core.environment import read_environment
from potluck.core.errors import PotluckError


def work(task: dict[str, Any], folder: str, output: str) -> dict[str, str]:
    """The whole life of a worker: how it ended, and for an error that a person can mend, the words for it."""
    from potluck.engine.stopping import Stopped  # noqa: PLC0415

    _take_over_streams(Path(output))
    # The supervisor's own handlers must not stand in the way of an orderly stop.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    try:
        if task.get("settings") is not None:
            _train(task["settings"])
        else:
            _run_script(Path(folder), task["entry"], task["arguments"])
    except (Stopped, KeyboardInterrupt):
        return {"state": "stopped", "message": ""}
    except PotluckError as error:
        return {"state": "failed", "message": str(error)}
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return {"state": "finished", "message": ""}


def _take_over_streams(output: Path) -> None:
    """What this process prints goes into its own file, which only ever grows."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("ab") as file, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for name, number in (("stdout", 1), ("stderr", 2)):
        setattr(sys, name, os.fdopen(os.dup(number), "w", buffering=1))


def _train(values: dict[str, Any]) -> None:
    from potluck.core.settings import make_settings  # noqa: PLC0415
    from potluck.workloads.trainer import train  # noqa: PLC0415

    environment = read_environment()
    settings = make_settings(values, source="the host's orders")
    data_dir = settings.data_dir or environment.data_dir
    # Notices are in the events, which everybody reads: nothing is left to say on the terminal of a worker.
    train(settings.model_copy(update={"data_dir": data_dir}), runs_dir=environment.runs_dir, watch=lambda *_: None)


def _run_script(folder: Path, entry: str, arguments: list[str]) -> None:
    """As `python entry arguments...` in the script's own folder would."""
    script = folder / entry
    os.chdir(folder)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        from potluck.engine.stopping import Stopped  # noqa: PLC0415

        if isinstance(end, Stopped):
            raise
        if end.code not in (None, 0):
            raise RuntimeError(f"the script ended with exit code {end.code}") from end
