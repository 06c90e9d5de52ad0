"""Atomic file writes: a reader sees the old content or the new content, never a part of it."""

import os
import sys
import threading
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING

from potluck.core.errors import RunFolderError
from potluck.core.shell_words import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPORARY_SUFFIX = ".tmp"
_numbers = count()


@contextmanager
def replacing(path: Path) -> "Iterator[IO[bytes]]":
    """Open a temporary file next to `path` for writing; on success, fsync it and rename it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two threads of one process may replace the same file at once, so every call has its own temporary name.
    writer = f"{next(_numbers)}.{threading.get_native_id()}.{os.getpid()}"
    temporary = path.with_name(f".{path.name}.{writer}{TEMPORARY_SUFFIX}")
    try:
        with temporary.open("wb+") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.is_dir():
            raise RunFolderError(
                f"{path} is a folder, and a file has to be written there",
                fix=f"move the folder away: mv {quote(path)} {quote(path)}.damaged",
            )
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # name the file that the user knows
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def clear_leftovers(folder: Path) -> None:
    """Remove this folder's temporary files whose writer processes have ended."""
    for leftover in folder.glob(f".*{TEMPORARY_SUFFIX}"):
        process = leftover.name.removesuffix(TEMPORARY_SUFFIX).rsplit(".", 1)[-1]
        if not (process.isdigit() and _is_alive(int(process))):
            leftover.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":  # where signal 0 is Ctrl-C
        import psutil  # noqa: PLC0415

        return bool(psutil.pid_exists(process))
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's process, and alive
    return True


def write_text(path: Path, text: str) -> None:
    """Replace a small file's content."""
    with replacing(path) as file:
        file.write(text.encode())


def write_secret(path: Path, text: str) -> None:
    """Replace a file that only its owner can read, also while it is being written; its folder becomes private too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    with replacing(path) as file:
        if sys.platform != "win32":  # where the folder of a user is private as it is
            os.fchmod(file.fileno(), 0o600)
        file.write(text.encode())


def sync_folder(folder: Path) -> None:
    """Make renames in the folder survive a power cut; Windows opens no folders, and writes renames down by itself."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
