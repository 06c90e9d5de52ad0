"""Folders that a user of this machine has given to runs. Other machines know a folder by its catalogue's hash only:
no message from outside can name a path that this machine would read.
"""

from pathlib import Path

from potluck.core.atomic import write_secret
from potluck.core.errors import SharingError
from potluck.core.newest_files import keep_newest
from potluck.core.plain_file import read_plain

_KEEP = 50


def grant(data_dir: Path, digest: str, folder: Path) -> None:
    """Note that this machine may send the files of a folder (its full path), which this catalogue lists."""
    notes = data_dir / "granted"
    write_secret(notes / digest, str(folder))
    keep_newest(notes.iterdir(), _KEEP)


def granted_folder(data_dir: Path, digest: str) -> Path:
    """The folder that this catalogue lists; SharingError if nobody on this machine has given it."""
    try:
        folder = Path(read_plain(data_dir / "granted" / digest).decode())
    except (OSError, UnicodeDecodeError):
        raise SharingError(
            "this machine was asked for a folder that nobody here has shared",
            fix="start the run on this machine: potluck run --data FOLDER script.py",
        ) from None
    if not folder.is_dir():
        raise SharingError(f"{folder}, which the run shares, is gone", fix="put it back, or start the run again")
    return folder
