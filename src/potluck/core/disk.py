"""Messages about a disk that is full or cannot be written: which file, why, and what to type."""

import errno
import os
import shutil
import tempfile
from pathlib import Path

from potluck.core.environment import read_environment
from potluck.core.errors import DiskError
from potluck.core.shell_words import quote

_FULL = {errno.ENOSPC: "the disk that holds it is full", errno.EDQUOT: "this user's space on its disk is used up"}
_LOCKED = {
    errno.EROFS: "the disk that holds it is read-only",
    errno.EACCES: "this user may not write there",
    errno.EPERM: "this user may not write there",
}
_NEXT_TO_NOTHING_BYTES = 1 << 20


def is_full(error: BaseException | None) -> bool:
    """Whether a full disk caused the error, directly or through its chain of causes: a later retry may succeed."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def as_disk_error(error: BaseException) -> DiskError | None:
    """A DiskError with the file and a fix, if a full or unwritable disk caused the error; else None."""
    if not isinstance(error, OSError) or error.errno is None:
        return None
    reason = _FULL.get(error.errno) or _LOCKED.get(error.errno)
    path = None if error.filename is None else Path(os.fsdecode(error.filename))
    if reason is None or (path is None and error.errno in (errno.EACCES, errno.EPERM)):  # a socket's error
        return None
    if path is None:
        return DiskError(f"a file cannot be written: {reason}", fix="see which disk is full: df -h")
    folder = _existing(path)
    look = f"df -h {quote(folder)}"
    if error.errno in _FULL:
        return DiskError(f"{path} cannot be written: {reason}", fix=f"free space: {look}")
    return DiskError(f"{path} cannot be written: {reason}", fix=f"make {folder} writable{_elsewhere(path)}")


def named(error: OSError, path: Path) -> OSError:
    """Add the path of the file that was being written: the system names no file when a write fails."""
    error.filename = str(path)
    return error


def full_disk_line(folder: Path, machine: str) -> str | None:
    """A line that users of other machines understand too, if the disk that holds the folder is full; else None."""
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError:
        return None
    if free_bytes >= _NEXT_TO_NOTHING_BYTES:
        return None
    look = f"df -h {quote(folder)}"
    return f"the disk of {machine} that holds {folder} is full; to free space, on {machine}: {look}"


def _existing(path: Path) -> Path:
    folder = path.absolute().parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def _elsewhere(path: Path) -> str:
    environment = read_environment()
    for variable, folder in (
        ("POTLUCK_HOME", environment.home),
        ("POTLUCK_RUNS_DIR", environment.runs_dir),
        ("POTLUCK_DATA_DIR", environment.data_dir),
        ("TMPDIR", Path(tempfile.gettempdir() if path.is_absolute() else "/tmp")),  # noqa: S108  only compared
    ):
        if path.absolute().is_relative_to(folder.absolute()):
            return f", or choose another folder: export {variable}=/folder/that/can/be/written"
    return ""
