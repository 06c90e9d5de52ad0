"""Lets a script read files that have not arrived yet: `open`, `os.stat` and `numpy.memmap` wait for what they need.

A file that is here is opened as always. A small file is waited for; of a large one, reading waits for the pieces that
are read. Programs in other languages (a library that opens files in C++) find no file before it has arrived.
"""

import builtins
import io
import os
import stat
import sys
from typing import Any

import numpy

from potluck.sharing.arriving_array import ArrivingMemmap
from potluck.sharing.arriving_paths import (
    WHOLE_BYTES,
    ArrivingFolder,
    ArrivingPath,
    find,
    folders,
    inside,
    is_opening,
    open_arriving,
    refused,
)

_real_open, _real_stat = builtins.open, os.stat


def watch(new: list[ArrivingFolder]) -> None:
    """Make this process wait for files of these folders. Cannot be undone."""
    is_first = not folders
    known = {folder.view for folder in folders}
    folders.extend(one for one in new if one.view not in known)
    if is_first and folders:
        builtins.open = io.open = _open
        os.stat = _stat
        numpy.memmap = ArrivingMemmap  # type: ignore[misc]
        sys.addaudithook(_hear)


def expect(samples: list[int], num_now: int, num_samples: int) -> None:
    """Samples of a dataset that are needed soon, the first `num_now` in this step: their files come before others."""
    if not samples:
        return
    for line in {id(folder.line): folder.line for folder in folders}.values():
        line.expect(samples, num_now, num_samples)


def is_arriving() -> bool:
    """Whether this process reads folders of which files are still to come."""
    return not all(folder.is_whole for folder in folders)


def _open(file: Any, mode: str = "r", buffering: int = -1, *more: Any, **keywords: Any) -> Any:
    found = find(file)
    if found is None:
        return _real_open(file, mode, buffering, *more, **keywords)
    if set(mode) & set("wax+"):
        raise refused(found.seen)
    if found.size > WHOLE_BYTES:
        reader = io.BufferedReader(_ArrivingFile(found), buffering if buffering > 1 else 1 << 17)
        return reader if "b" in mode else io.TextIOWrapper(reader, *more, **keywords)
    found.want()
    return _real_open(found.seen, mode, buffering, *more, **keywords)


def _stat(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
    found = find(path) if follow_symlinks and dir_fd is None else None
    if found is None:
        return _real_stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
    link = os.lstat(found.seen)
    try:
        size = found.size
    except FileNotFoundError:
        return _real_stat(path)
    owner = (link.st_uid, link.st_gid)
    return os.stat_result((stat.S_IFREG | 0o444, link.st_ino, link.st_dev, 1, *owner, size, *link[7:10]))


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Before any file is opened: wait for one that has not arrived; nothing in the folders is written."""
    if event != "open" or is_opening():
        return
    path, _, flags = arguments
    found = inside(path)
    if found is None:
        return
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        raise refused(os.fsdecode(path))
    if not found.has_arrived:
        found.want()


class _ArrivingFile(io.RawIOBase):
    """A large file, opened before it has arrived: reading waits for the bytes that are read."""

    def __init__(self, found: ArrivingPath) -> None:
        super().__init__()
        self.name = found.seen
        self.mode = "rb"
        self._found = found
        self._size = found.size
        self._at = 0
        self._here = (0, 0)
        self._file: int | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        end = min(self._size, self._at + len(view))
        if end <= self._at:
            return 0
        if not (self._here[0] <= self._at and end <= self._here[1]):
            self._here = self._found.want(self._at, end)
        read = os.preadv(self._descriptor(), [view[: end - self._at]], self._at)
        self._at += read
        return read

    def fileno(self) -> int:
        """Whoever asks for the descriptor may read anything: waits for the whole file."""
        self._found.want()
        return self._descriptor()

    def _descriptor(self) -> int:
        if self._file is None:
            self._file = open_arriving(self._found)
        return self._file

    def close(self) -> None:
        if self._file is not None and not self.closed:
            os.close(self._file)
        super().close()
