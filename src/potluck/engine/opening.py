"""Opens a run: claims its folder, writes run.yaml, and reads the checkpoint to resume from."""

import sys
from pathlib import Path
from typing import Any

import yaml

from potluck.core.atomic import write_text
from potluck.core.checkpoint_names import checkpoint_files
from potluck.core.environment import is_kernel
from potluck.core.errors import SettingsError
from potluck.core.run_folder import RunFolder, check_run_name, create_run_folder, free_run_name
from potluck.engine.checkpoints.checkpoint_file import read_checkpoint
from potluck.engine.checkpoints.checkpoints import newest_whole
from potluck.engine.checkpoints.state import check_state
from potluck.engine.steps.journal import Journal
from potluck.events.log import read_records
from potluck.events.state import replay
from potluck.events.types import RunResumed


def claim_folder(runs_dir: Path, name: str | None, *, resume: bool) -> RunFolder:
    """The folder called `name` if it exists and the run resumes or nothing was trained in it; else a new folder."""
    if name is None:
        if resume:
            raise SettingsError("resume needs to know which run", fix="pass the run's name to potluck.start")
        script = Path(sys.argv[0]).stem
        if not script or script.startswith("-"):  # python -c, or a script from stdin
            script = "run"
        name = free_run_name(runs_dir, "notebook" if is_kernel() else script)
    folder = RunFolder(runs_dir / check_run_name(name))
    if folder.path.is_dir() and (resume or not _has_trained(folder)):
        return folder
    return create_run_folder(runs_dir, name)


def _has_trained(folder: RunFolder) -> bool:
    """Whether the folder has checkpoints or committed steps, which another run would overwrite or mix with its own."""
    if checkpoint_files(folder.checkpoints_dir):
        return True
    return any(replay(read_records(file)).step > 0 for file in folder.event_files())


def record_settings(folder: RunFolder, values: dict[str, Any], *, is_script: bool) -> None:
    """Write run.yaml; for a script (`is_script`), the host's record of the command line is kept."""
    typed = what_was_typed(folder) if is_script else {}
    write_text(folder.settings_file, yaml.safe_dump({**values, **typed}, sort_keys=False))


def what_was_typed(folder: RunFolder) -> dict[str, Any]:
    """The command line as the host recorded it: each machine runs a copy of the script, under another path."""
    try:
        known = yaml.safe_load(folder.settings_file.read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return {}
    if not isinstance(known, dict) or not known.get("bundle"):
        return {}
    typed = ("script", "arguments", "bundle", "env", "keep", "command_options")
    return {key: known[key] for key in typed if key in known}


def read_state(
    folder: RunFolder, journal: Journal, *, resume: bool, resume_from: Path | None, newcomer: str | None
) -> dict[str, Any] | None:
    """The state to resume from, if any. `newcomer`: this machine's name, if other workers may have a state."""
    path = newest_whole(folder.checkpoints_dir, journal.say) if resume else None
    path = path or resume_from
    if path is None:
        if resume:
            journal.say(
                f"{folder.path} has no whole checkpoint: training begins at step 0"
                if newcomer is None
                else f"{newcomer} has no checkpoint of this run: it takes the state of the others"
            )
        return None
    state = check_state(read_checkpoint(path), str(path))
    journal.emit(RunResumed(step=int(state["step"]), checkpoint=path.name))
    journal.say(f"going on after step {state['step']} from {path}")
    return state
