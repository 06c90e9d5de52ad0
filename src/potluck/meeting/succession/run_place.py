"""Where this machine keeps a run: one lookup for its workers, its copies for a host, and its own part as the host."""

from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError

from potluck.core.plain_file import read_plain
from potluck.meeting.home import Home


class _KeptRun(BaseModel):
    """What a host's record of a run says about its folder."""

    id: str
    folder: Path


def run_place(home: Home, run: str, run_id: str) -> Path:
    """The run's folder here: below ~/.potluck/runs, or where this machine kept the run when it was the host.

    Workers go on in the files that they have begun, of which the host of now has copies.
    """
    with suppress(OSError, ValidationError):
        kept = _KeptRun.model_validate_json(read_plain(home.host_dir / "runs" / f"{run}.json"))
        if kept.id == run_id and kept.folder.name == run and kept.folder.is_dir():
            return kept.folder
    return home.runs_dir.absolute() / run


def is_made_by_host(home: Home, folder: Path) -> bool:
    """Whether a run's folder is one that this machine has made as the host: there is no id of the run in it."""
    return folder.parent != home.runs_dir.absolute()
