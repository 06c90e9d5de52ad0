"""The folder of a run: the path of each kind of file, and how a run creates or finds its folder."""

import re
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from potluck.core.errors import RunFolderError, did_you_mean

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """experiments/<name>/ with run.yaml, events/, logs/, checkpoints/ and traces/."""

    path: Path
    origin: tuple[str, Path] | None = None
    """The machine and the path of the original folder, if this folder is a copy."""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def settings_file(self) -> Path:
        return self.path / "run.yaml"

    @property
    def checkpoints_dir(self) -> Path:
        return self.path / "checkpoints"

    @property
    def host_lock_file(self) -> Path:
        """The host locks this file while the run goes on: its copies of other machines' event files carry no locks."""
        return self.path / "host.lock"

    @property
    def end_file(self) -> Path:
        """How a plain run ended, as its host saw it."""
        return self.path / "end.json"

    def event_file(self, machine: str, worker: int) -> Path:
        return self.path / "events" / f"{machine}-{worker}.jsonl"

    def event_files(self) -> list[Path]:
        return sorted((self.path / "events").glob("*.jsonl"))

    def log_file(self, machine: str, worker: int) -> Path:
        return self.path / "logs" / f"{machine}-{worker}.log"

    def trace_file(self, machine: str, worker: int, first_step: int, last_step: int) -> Path:
        """A trace of these steps; a resumed run that does the same steps again gets another name."""
        stem = f"{machine}-{worker}.steps-{first_step}-{last_step}"
        names = (stem if number == 1 else f"{stem}.{number}" for number in count(1))
        return next(path for name in names if not (path := self.path / "traces" / f"{name}.json.gz").exists())

    def metrics_file(self, worker: int) -> Path:
        return self.path / "logs" / f"rank_{worker}_metrics.json"


def create_run_folder(runs_dir: Path, name: str) -> RunFolder:
    """Create the folder of a new run; RunFolderError if there is one of that name."""
    folder = RunFolder(runs_dir / check_run_name(name))
    try:
        folder.path.mkdir(parents=True)
    except OSError as error:
        if folder.path.is_dir():
            raise RunFolderError(
                f"{folder.path} already holds a run",
                fix="continue it with --resume (in a script: resume=True), or choose another name",
            ) from None
        raise RunFolderError(
            f"{folder.path.absolute()} cannot be made: {error.strerror}",
            fix="change to a folder that you may write to, or name one with POTLUCK_RUNS_DIR",
        ) from None
    return folder


def free_run_name(runs_dir: Path, stem: str) -> str:
    """The first of <stem>-1, <stem>-2, ... that no folder has."""
    return next(name for number in count(1) if not (runs_dir / (name := f"{stem}-{number}")).exists())


def find_run_folder(runs_dir: Path, name: str, *, to_resume: bool = False) -> RunFolder:
    """The folder of an existing run; `to_resume` only chooses the fix of the error."""
    folder = RunFolder(runs_dir / check_run_name(name))
    if not folder.settings_file.is_file():
        known = [run.name for run in run_folders(runs_dir)]
        raise RunFolderError(
            f"there is no run {name!r} in {runs_dir.absolute()}",
            fix=did_you_mean(name, known) if known else _start_one(to_resume),
        )
    return folder


def newest_run_folder(runs_dir: Path, *, to_resume: bool = False) -> RunFolder:
    """The folder of the run whose events changed last; `to_resume` only chooses the words of the error."""
    runs = run_folders(runs_dir)
    if not runs:
        raise RunFolderError(
            f"there is no run in {runs_dir.absolute()}{' to resume' if to_resume else ''}", fix=_start_one(to_resume)
        )
    return max(runs, key=lambda run: max((file.stat().st_mtime for file in run.event_files()), default=0.0))


def _start_one(to_resume: bool) -> str:
    return "leave --resume out to start one" if to_resume else "start one with: potluck train"


def run_folders(runs_dir: Path) -> list[RunFolder]:
    """The folders of all runs in `runs_dir`, sorted by name."""
    return [RunFolder(file.parent) for file in sorted(runs_dir.glob("*/run.yaml"))]


def check_run_name(name: str) -> str:
    """The name, if it is valid as the name of a single folder; else RunFolderError."""
    if not _NAME.fullmatch(name):
        raise RunFolderError(
            f"{name!r} cannot name a run",
            fix="use letters from a to z without accents, digits, '.', '_' and '-', starting with a letter "
            "or digit, at most 100 of them",
        )
    return name
