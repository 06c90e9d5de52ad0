"""The runs in a folder, each in one row."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from potluck.core.errors import EventLogError
from potluck.core.run_folder import RunFolder, run_folders
from potluck.events.alive import is_alive
from potluck.events.log import read_records
from potluck.events.state import RunState, replay


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run: what it was told, and where its first worker stands."""

    folder: RunFolder
    settings: dict[str, Any]
    state: RunState
    status: str
    """finished, stopped, failed, running, damaged, or interrupted: no process trains it and none said goodbye."""


def list_runs(runs_dir: Path) -> list[RunRow]:
    """All runs, the most recently changed last."""
    return sorted((_row(folder) for folder in run_folders(runs_dir)), key=lambda row: row.state.updated_at)


def _row(folder: RunFolder) -> RunRow:
    files = folder.event_files()
    try:
        settings = dict(yaml.safe_load(folder.settings_file.read_text()) or {})
        # A run that moved to a machine of another name has a file for each: the newest tells where it stands.
        states = [replay(read_records(file)) for file in files]
    except (EventLogError, yaml.YAMLError, ValueError, OSError):
        return RunRow(folder, {}, RunState(run=folder.name), "damaged")
    if not states:
        return RunRow(folder, settings, RunState(run=folder.name), "interrupted")
    state = max(states, key=lambda state: state.updated_at)
    return RunRow(folder, settings, state, status_of(folder, state))


def status_of(folder: RunFolder, state: RunState) -> str:
    """Whether the run goes on, and what became of it if it does not."""
    return "running" if is_alive(folder) else state.ended or "interrupted"
