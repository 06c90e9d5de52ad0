"""Files of folders that arrive while a script runs: which paths lead to them, and where their pieces are."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potluck.sharing.asking import SharingLine
from potluck.sharing.place import COMPLETE

WHOLE_BYTES = 8 << 20
"""A file of up to this size is waited for as a whole."""
_state = threading.local()


@dataclass(frozen=True, slots=True)
class ArrivingFolder:
    """A folder that arrives while the script runs."""

    name: str
    view: str
    """Where the script sees it."""
    links: tuple[str, ...]
    """Other paths that lead there."""
    arriving: str
    """Where its files are while they arrive."""
    line: SharingLine

    @property
    def is_whole(self) -> bool:
        """Whether all of its files are here."""
        return (Path(self.arriving).parents[1] / COMPLETE).is_file()


@dataclass(frozen=True, slots=True)
class ArrivingPath:
    """A file in such a folder."""

    folder: ArrivingFolder
    path: str
    """Relative to the folder."""

    @property
    def seen(self) -> str:
        return os.path.join(self.folder.view, self.path)  # noqa: PTH118  on the way of every open

    @property
    def has_arrived(self) -> bool:
        """Whether it is where the script sees it; in its place there is a link to nowhere until then."""
        return not os.path.islink(self.seen)  # noqa: PTH114

    @property
    def size(self) -> int:
        return self.folder.line.look(self.folder.name, self.path)

    def want(self, start: int = 0, end: int | None = None) -> tuple[int, int]:
        """Wait for bytes of the file; returns the first and the last of all bytes around them that are here."""
        found = self.folder.line.want(self.folder.name, self.path, start, end)
        return found.start, found.end


folders: list[ArrivingFolder] = []
"""The folders of this process."""


def inside(path: Any) -> ArrivingPath | None:
    """The path, if it leads into one of the folders; None for every other path."""
    if isinstance(path, int) or path is None:
        return None
    try:
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  links must not be followed
    except (TypeError, ValueError):
        return None
    for folder in folders:
        for start in (folder.view, *folder.links):
            if name.startswith(start) and name[len(start) : len(start) + 1] == "/":
                return ArrivingPath(folder, name[len(start) + 1 :])
    return None


def find(path: Any) -> ArrivingPath | None:
    """The file, if it is in one of the folders and has not arrived; None for every other path."""
    found = inside(path)
    return None if found is None or found.has_arrived else found


def refused(path: str) -> OSError:
    """The error of whoever would write into a folder."""
    why = "it belongs to data that all machines of the run share; write to another folder"
    return OSError(errno.EROFS, why, path)


@contextmanager
def _opening() -> Iterator[None]:
    """While it lasts, this thread opens files as they are."""
    _state.is_opening = True
    try:
        yield
    finally:
        _state.is_opening = False


def is_opening() -> bool:
    """Whether this thread opens a file of which pieces are here, and knows which."""
    return getattr(_state, "is_opening", False)


def open_arriving(found: ArrivingPath) -> int:
    """The descriptor of a file of which some pieces are here."""
    with _opening():
        for path in (os.path.join(found.folder.arriving, found.path), found.seen):  # noqa: PTH118
            try:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
    raise FileNotFoundError(found.seen)
