"""numpy.memmap of a file that has not arrived: an array that waits for the rows that are read."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy
from numpy import memmap as real_memmap

from potluck.sharing.arriving_paths import WHOLE_BYTES, ArrivingPath, find, open_arriving, refused


class _OfBoth(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, real_memmap)


class ArrivingMemmap(real_memmap, metaclass=_OfBoth):
    """numpy.memmap, but for a large file that has not arrived an ArrivingArray."""

    def __new__(cls, filename: Any, *positional: Any, **keywords: Any) -> Any:
        found = find(filename) if isinstance(filename, str | os.PathLike) else None
        if found is None:
            return real_memmap(filename, *positional, **keywords)
        given = dict(zip(("dtype", "mode", "offset", "shape", "order"), positional, strict=False)) | keywords
        if given.get("mode", "r+") not in ("r", "readonly", "c", "copyonwrite"):
            raise refused(found.seen)
        if found.size <= WHOLE_BYTES:
            found.want()
            return real_memmap(filename, **given)
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
            descriptor = open_arriving(self._found)
            with os.fdopen(descriptor, "rb") as file:
                self._array = real_memmap(file, **{**self._given, "shape": self.shape, "dtype": self.dtype})
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
