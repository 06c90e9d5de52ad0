"""Append-only event files: one JSON object a line, one writer a file, readable at any moment."""

import errno
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec

from potluck.core.errors import EventLogError
from potluck.events.alive import hold
from potluck.events.types import AnyEvent, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Record)
_TAIL_BYTES = 1 << 16


class EventLog:
    """Writes one worker's events. A line reaches the kernel in one write, so a killed process leaves whole lines."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            hold(self._file, path)
            self._next_sequence = _repair(self._file, path) + 1
        except BaseException:
            os.close(self._file)
            raise
        _open_logs.add(self)

    def append(self, event: AnyEvent) -> Record:
        """Write the event with the next sequence number and the time."""
        if self._file < 0:
            raise EventLogError("the run is closed", fix="do this before run.close() or inside `with potluck.start()`")
        record = Record(sequence=self._next_sequence, time=time.time(), event=event)
        line = _encode(record) + b"\n"
        before = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            if written < len(line):  # a disk that is just full takes a part of the line
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.ftruncate(self._file, before)
            raise EventLogError(
                f"{self.path} cannot be written: {error.strerror}",
                fix=f"free space on the disk that holds {self.path.parent}, then go on with --resume",
            ) from error
        self._next_sequence += 1
        return record

    def sync(self) -> None:
        """Make sure that the events survive a power cut."""
        os.fsync(self._file)

    def close(self) -> None:
        """Let go of the file. Closing twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _forget_in_child() -> None:
    """A forked reader of data must not keep the lock of a run whose process is gone."""
    for log in list(_open_logs):
        log.close()


_open_logs: "WeakSet[EventLog]" = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def read_records(path: Path) -> "Iterator[Record]":
    """Every whole line, in order. Reading stops quietly at a half-written last line, and nowhere else."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            record = _read_line(line, path, number)
            if record is not None:
                yield record


def read_last_records(path: Path, most_bytes: int) -> "list[Record]":
    """The whole lines among the last bytes of a file: where a long run stands, without reading all of it."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - most_bytes)
        file.seek(start)
        content = file.read(most_bytes)
    if start:
        content = content[content.find(b"\n") + 1 :]
    return parse_lines(content[: content.rfind(b"\n") + 1], path)


def parse_lines(lines: bytes, path: Path, first_number: int = 1) -> list[Record]:
    """The events in some whole lines of a file, the first of them its line `first_number`."""
    try:
        return _decoder.decode_lines(lines)
    except msgspec.DecodeError:  # damage, or a kind of event from a newer Potluck
        numbered = enumerate(lines.splitlines(keepends=True), start=first_number)
        return [record for number, line in numbered if (record := _read_line(line, path, number)) is not None]


def _read_line(line: bytes, path: Path, number: int) -> Record | None:
    try:
        return _decoder.decode(line)
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


def _repair(file: int, path: Path) -> int:
    """Cut a half-written last line off and return the last sequence number, -1 for an empty file."""
    size = os.fstat(file).st_size
    tail = b""
    while len(tail) < size and tail.rstrip(b"\n").count(b"\n") < 2:  # the last whole line, and what follows it
        step = min(_TAIL_BYTES, size - len(tail))
        tail = os.pread(file, step, size - len(tail) - step) + tail
    whole = tail.rfind(b"\n") + 1
    if whole < len(tail):
        os.ftruncate(file, size - len(tail) + whole)
    lines = tail[:whole].splitlines()
    if not lines:
        return -1
    try:
        envelope: Any = msgspec.json.decode(lines[-1])
    except msgspec.DecodeError:
        envelope = None
    match envelope:
        case {"sequence": int(last)}:
            return last
    raise EventLogError(f"the last line of {path} is not an event", fix=f"remove it: sed -i '$d' {path}")
