"""Lets a script read files that have not arrived yet: `open`, `os.stat` and `numpy.memmap` wait for what they need.

A file that is here is opened as always. A small file is waited for; of a large one, reading waits for the pieces that
are read. Programs in other languages (a library that opens files in C++) find no file before it has arrived.
"""

import builtins
import errno
import io
import os
import stat
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
from numpy import memmap as _real_memmap

from potluck.sharing.asking import SharingLine

WHOLE_BYTES = 8 << 20
"""A file of up to this size is waited for as a whole."""
_real_open, _real_stat = builtins.open, os.stat
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


@dataclass(frozen=True, slots=True)
class ArrivingPath:
    """A file in such a folder that has not arrived."""

    folder: ArrivingFolder
    path: str
    """Relative to the folder."""

    @property
    def seen(self) -> str:
        return os.path.join(self.folder.view, self.path)  # noqa: PTH118  on the way of every open

    @property
    def size(self) -> int:
        return self.folder.line.look(self.folder.name, self.path)

    def want(self, start: int = 0, end: int | None = None) -> tuple[int, int]:
        """Wait for bytes of the file; returns the first and the last of all bytes around them that are here."""
        found = self.folder.line.want(self.folder.name, self.path, start, end)
        return found.start, found.end


_folders: list[ArrivingFolder] = []


def watch(folders: list[ArrivingFolder]) -> None:
    """Make this process wait for files of these folders. Cannot be undone."""
    is_first = not _folders
    _folders.extend(one for one in folders if one.view not in {known.view for known in _folders})
    if is_first and _folders:
        builtins.open = io.open = _open
        os.stat = _stat
        numpy.memmap = _Memmap  # type: ignore[misc]
        sys.addaudithook(_hear)


def expect(samples: list[int], num_samples: int) -> None:
    """Samples of a dataset that are needed soon: their files come before the others."""
    if not samples:
        return
    for line in {id(folder.line): folder.line for folder in _folders}.values():
        line.expect(samples, num_samples)


def is_watching() -> bool:
    """Whether this process waits for files of such folders."""
    return bool(_folders)


def _inside(path: Any) -> tuple[ArrivingFolder, str] | None:
    """The folder that a path leads into, and the rest of the path; None for every other path."""
    if isinstance(path, int) or path is None:
        return None
    try:
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  links must not be followed
    except (TypeError, ValueError):
        return None
    for folder in _folders:
        for start in (folder.view, *folder.links):
            if name.startswith(start) and name[len(start) : len(start) + 1] == "/":
                return folder, name[len(start) + 1 :]
    return None


def _find(path: Any) -> ArrivingPath | None:
    """The file, if it is in one of the folders and has not arrived; None for every other path."""
    found = _inside(path)
    if found is None or not os.path.islink(os.path.join(found[0].view, found[1])):  # noqa: PTH114, PTH118
        return None
    return ArrivingPath(*found)


def _open(file: Any, mode: str = "r", buffering: int = -1, *more: Any, **keywords: Any) -> Any:
    found = _find(file)
    if found is None:
        return _real_open(file, mode, buffering, *more, **keywords)
    if set(mode) & set("wax+"):
        raise _refused(found.seen)
    if found.size > WHOLE_BYTES:
        reader = io.BufferedReader(_ArrivingFile(found), buffering if buffering > 1 else 1 << 17)
        return reader if "b" in mode else io.TextIOWrapper(reader, *more, **keywords)
    found.want()
    return _real_open(found.seen, mode, buffering, *more, **keywords)


def _stat(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
    found = _find(path) if follow_symlinks and dir_fd is None else None
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
    if event != "open" or getattr(_state, "is_own", False):
        return
    path, _, flags = arguments
    found = _inside(path)
    if found is None:
        return
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        raise _refused(os.fsdecode(path))
    if os.path.islink(os.path.join(found[0].view, found[1])):  # noqa: PTH114, PTH118
        ArrivingPath(*found).want()


def _refused(path: str) -> OSError:
    why = "it belongs to data that all machines of the run share; write to another folder"
    return OSError(errno.EROFS, why, path)


class _Own:
    """While it lasts, this thread opens files as they are."""

    def __enter__(self) -> None:
        _state.is_own = True

    def __exit__(self, *_: object) -> None:
        _state.is_own = False


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
            self._file = _open_arriving(self._found)
        return self._file

    def close(self) -> None:
        if self._file is not None and not self.closed:
            os.close(self._file)
        super().close()


def _open_arriving(found: ArrivingPath) -> int:
    """The descriptor of a file of which some pieces are here."""
    with _Own():
        for path in (os.path.join(found.folder.arriving, found.path), found.seen):  # noqa: PTH118
            try:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
    raise FileNotFoundError(found.seen)


class _OfBoth(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _real_memmap)


class _Memmap(_real_memmap, metaclass=_OfBoth):
    """numpy.memmap, but for a large file that has not arrived an ArrivingArray."""

    def __new__(cls, filename: Any, *positional: Any, **keywords: Any) -> Any:
        found = _find(filename) if isinstance(filename, str | os.PathLike) else None
        if found is None:
            return _real_memmap(filename, *positional, **keywords)
        given = dict(zip(("dtype", "mode", "offset", "shape", "order"), positional, strict=False)) | keywords
        if given.get("mode", "r+") not in ("r", "readonly", "c", "copyonwrite"):
            raise _refused(found.seen)
        if found.size <= WHOLE_BYTES:
            found.want()
            return _real_memmap(filename, **given)
        return ArrivingArray(found, given)


class ArrivingArray:
    """An array in a file that arrives: an index waits for its rows, everything else for the whole file.

    It is no numpy array: whatever reads memory past the index, such as torch.from_numpy, refuses it, where it would
    read holes.
    """

    def __init__(self, found: ArrivingPath, given: Mapping[str, Any]) -> None:
        self._found = found
        self._given = {**given, "mode": "r"}
        self._offset = int(given.get("offset", 0))
        kind = numpy.dtype(given.get("dtype", numpy.uint8))
        shape = given.get("shape")
        if shape is None:
            shape = ((found.size - self._offset) // kind.itemsize,)
        self.shape: tuple[int, ...] = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = kind
        self._row_bytes = kind.itemsize * int(numpy.prod(self.shape[1:], dtype=numpy.int64))
        self._array: numpy.ndarray[Any, Any] | None = None
        self._here = (0, 0)
        self._is_whole = False

    def __len__(self) -> int:
        return int(self.shape[0])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(numpy.prod(self.shape, dtype=numpy.int64))

    @property
    def nbytes(self) -> int:
        return self.size * int(self.dtype.itemsize)

    def __getitem__(self, index: Any) -> Any:
        rows = index[0] if isinstance(index, tuple) and index else index
        for start, end in _spans(rows, len(self)) if self._given.get("order", "C") == "C" else [(0, len(self))]:
            first, last = self._offset + start * self._row_bytes, self._offset + end * self._row_bytes
            if not self._is_whole and not (self._here[0] <= first and last <= self._here[1]):
                self._here = self._found.want(first, last)
        return numpy.asarray(self._mapped())[index]

    def __iter__(self) -> Any:
        return (self[number] for number in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        whole = self._whole()
        return numpy.array(whole, dtype=dtype, copy=True) if copy else numpy.asarray(whole, dtype=dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._whole(), name)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _remap, (self._found.seen, dict(self._given))

    def _mapped(self) -> "numpy.ndarray[Any, Any]":
        if self._array is None:
            descriptor = _open_arriving(self._found)
            with os.fdopen(descriptor, "rb") as file:
                self._array = _real_memmap(file, **{**self._given, "shape": self.shape, "dtype": self.dtype})
        return self._array

    def _whole(self) -> "numpy.ndarray[Any, Any]":
        if not self._is_whole:
            self._found.want()
            self._is_whole = True
        return self._mapped()


def _remap(path: str, given: dict[str, Any]) -> Any:
    """In another process, which may not have started as a worker: an array of the file."""
    return numpy.memmap(path, **given)


def _spans(rows: Any, length: int) -> list[tuple[int, int]]:
    """The rows that an index reads, as first and last (excluded) of each span."""
    if isinstance(rows, slice):
        read = range(*rows.indices(length))
        return [(min(read[0], read[-1]), max(read[0], read[-1]) + 1)] if read else []
    if isinstance(rows, int | numpy.integer):
        row = int(rows) + (length if rows < 0 else 0)
        return [(row, row + 1)] if 0 <= row < length else []
    if isinstance(rows, list | numpy.ndarray) or hasattr(rows, "__array__"):
        numbers = numpy.asarray(rows)
        if numbers.dtype == bool:
            numbers = numpy.flatnonzero(numbers)
        return [(int(row) % length, int(row) % length + 1) for row in numpy.unique(numbers)]
    return [(0, length)]
