"""The folder of a run: where each kind of file lives, and how a new one is claimed."""

import re
from dataclasses import dataclass
from pathlib import Path

from potluck.core.errors import RunFolderError, did_you_mean

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """experiments/<name>/ with run.yaml, events/, logs/ and checkpoints/."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def settings_file(self) -> Path:
        return self.path / "run.yaml"

    @property
    def checkpoints_dir(self) -> Path:
        return self.path / "checkpoints"

    def event_file(self, machine: str, worker: int) -> Path:
        return self.path / "events" / f"{machine}-{worker}.jsonl"

    def event_files(self) -> list[Path]:
        return sorted((self.path / "events").glob("*.jsonl"))

    def metrics_file(self, worker: int) -> Path:
        return self.path / "logs" / f"rank_{worker}_metrics.json"


def create_run_folder(runs_dir: Path, name: str) -> RunFolder:
    """Claim a new folder under that name."""
    folder = RunFolder(runs_dir / check_run_name(name))
    try:
        folder.path.mkdir(parents=True)
    except FileExistsError:
        raise RunFolderError(
            f"{folder.path} already holds a run",
            fix="add --resume to continue it, or choose another --experiment-name",
        ) from None
    return folder


def create_numbered_run_folder(runs_dir: Path, stem: str) -> RunFolder:
    """Claim <stem>-1, or the next number that is free."""
    number = 1
    while True:
        try:
            return create_run_folder(runs_dir, f"{stem}-{number}")
        except RunFolderError:
            number += 1


def find_run_folder(runs_dir: Path, name: str) -> RunFolder:
    """The folder of an existing run."""
    folder = RunFolder(runs_dir / check_run_name(name))
    if not folder.settings_file.is_file():
        known = [run.name for run in run_folders(runs_dir)]
        raise RunFolderError(
            f"there is no run {name!r} in {runs_dir}",
            fix=did_you_mean(name, known) if known else "leave --resume out to start one",
        )
    return folder


def run_folders(runs_dir: Path) -> list[RunFolder]:
    """All runs in a folder, by name."""
    return [RunFolder(file.parent) for file in sorted(runs_dir.glob("*/run.yaml"))]


def check_run_name(name: str) -> str:
    """The name, if it can be one folder and nothing else."""
    if not _NAME.fullmatch(name):
        raise RunFolderError(
            f"{name!r} cannot name a run",
            fix="use letters, digits, '.', '_' and '-', starting with a letter or digit, at most 100 of them",
        )
    return name
