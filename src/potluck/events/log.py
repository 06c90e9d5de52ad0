"""Append-only event files: one JSON object a line, one writer a file, readable at any moment."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from potluck.core.errors import EventLogError
from potluck.events.types import AnyEvent, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode
_TAIL_BYTES = 1 << 16


class EventLog:
    """Writes one worker's events. A line reaches the kernel in one write, so a killed process leaves whole lines."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            _lock(self._file, path)
            self._next_sequence = _repair(self._file, path) + 1
        except BaseException:
            os.close(self._file)
            raise

    def append(self, event: AnyEvent) -> Record:
        """Write the event with the next sequence number and the time."""
        record = Record(sequence=self._next_sequence, time=time.time(), event=event)
        line = memoryview(_encode(record) + b"\n")
        while line:  # a nearly full disk takes a line in pieces
            line = line[os.write(self._file, line) :]
        self._next_sequence += 1
        return record

    def sync(self) -> None:
        """Make sure that the events survive a power cut."""
        os.fsync(self._file)

    def close(self) -> None:
        """Sync and let go of the file. Closing twice is fine."""
        if self._file >= 0:
            self.sync()
            os.close(self._file)
            self._file = -1


def read_records(path: Path) -> "Iterator[Record]":
    """Every whole line, in order. Reading stops quietly at a half-written last line, and nowhere else."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            record = _read_line(line, path, number)
            if record is not None:
                yield record


def is_being_written(path: Path) -> bool:
    """Whether a live process on this machine holds the file."""
    import fcntl  # noqa: PLC0415  POSIX only, and reading must work everywhere

    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _read_line(line: bytes, path: Path, number: int) -> Record | None:
    try:
        return _decode(line)
    except msgspec.ValidationError as error:
        if _is_unknown_kind(line):
            return None  # a newer Potluck wrote it
        reason = str(error)
    except msgspec.DecodeError as error:
        reason = str(error)
    raise EventLogError(
        f"{path}, line {number} is damaged: {reason}",
        fix=f"remove that line (sed -i '{number}d' {path}) if losing one event is acceptable, else restore the file",
    )


def _is_unknown_kind(line: bytes) -> bool:
    known = {kind.__struct_config__.tag for kind in AnyEvent.__args__}
    match msgspec.json.decode(line):
        case {"event": {"type": str(kind)}}:
            return kind not in known
    return False


def _lock(file: int, path: Path) -> None:
    import fcntl  # noqa: PLC0415

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise EventLogError(
            f"another process is training this run: it holds {path}",
            fix="wait for it, stop it, or choose another --experiment-name",
        ) from None


def _repair(file: int, path: Path) -> int:
    """Cut a half-written last line off and return the last sequence number, -1 for an empty file."""
    size = os.fstat(file).st_size
    tail = os.pread(file, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    whole = tail.rfind(b"\n") + 1
    if whole < len(tail):
        os.ftruncate(file, size - len(tail) + whole)
    lines = tail[:whole].splitlines()
    if not lines:
        return -1
    envelope: Any = msgspec.json.decode(lines[-1])
    match envelope:
        case {"sequence": int(last)}:
            return last
    raise EventLogError(f"the last line of {path} is not an event", fix="choose another --experiment-name")
