"""The runs in a folder, each in one row."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from potluck.core.errors import PotluckError
from potluck.core.run_folder import RunFolder, run_folders
from potluck.core.yaml_file import read_yaml
from potluck.events.state import RunState
from potluck.report.view import read_run


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run: its settings, and the state of its farthest worker."""

    folder: RunFolder
    settings: dict[str, Any]
    state: RunState
    status: str
    """A status of events.alive.status_of; or damaged, if the run cannot be read."""

    @property
    def is_plain(self) -> bool:
        """Whether the run's script does not use Potluck, so that its steps are not known."""
        return self.settings.get("plain") is True

    @property
    def is_simulated(self) -> bool:
        """Whether potluck simulate has computed the run, and nothing was trained."""
        return self.settings.get("simulated") is True


def list_runs(runs_dir: Path) -> list[RunRow]:
    """All runs, the most recently changed last."""
    return sorted((_row(folder) for folder in run_folders(runs_dir)), key=lambda row: row.state.updated_at)


def _row(folder: RunFolder) -> RunRow:
    try:
        read_yaml(folder.settings_file)  # raises if the settings are damaged: a view shows a run without them
        view = read_run(folder)
    except PotluckError:
        return RunRow(folder, {}, RunState(run=folder.name), "damaged")
    # The throughput is that of the worker that saw the most samples.
    states = [worker.state for worker in view.merge.workers.values()]
    most = max(states, key=lambda state: state.samples_seen, default=RunState())
    state = replace(view.state, samples_seen=most.samples_seen, training_s=most.training_s)
    return RunRow(folder, view.settings, state, view.status)
