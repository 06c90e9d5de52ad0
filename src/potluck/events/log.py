"""Append-only event files: one JSON object a line, one writer a file, readable at any moment."""

import errno
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec

from potluck.core.disk import is_full
from potluck.core.errors import EventLogError
from potluck.core.plain_file import OWN_BYTES, what_happened
from potluck.core.shell_words import quote
from potluck.events.alive import hold
from potluck.events.lines import MOST_LINE_BYTES, line_too_long, open_events, parse_lines, read_line
from potluck.events.types import AnyEvent, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

_encode = msgspec.json.Encoder().encode
_TAIL_BYTES = 1 << 16
_MOST_WAITING_BYTES = 32 << 20  # hours of events, so that a full disk does not end a run
_LAST_S = 5.0
_LOOK_S = 0.2


class EventLog:
    """Writes one worker's events. A line reaches the kernel in one write, so a killed process leaves whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting = b""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | OWN_BYTES, 0o644)
        except OSError as error:
            raise _not_writable(path, error) from None
        try:
            hold(self._file, path)
            self._next_sequence = _repair(self._file, path) + 1
        except OSError as error:  # a pipe or a device under the file's name
            os.close(self._file)
            raise _not_writable(path, error) from None
        except BaseException:
            os.close(self._file)
            raise
        _open_logs.add(self)

    def append(self, event: AnyEvent, at: float | None = None) -> Record:
        """Write the event with the next sequence number and the time; `at` is the time of a clock other than ours."""
        if self._file < 0:
            raise EventLogError("the run is closed", fix="do this before run.close() or inside `with potluck.start()`")
        record = Record(sequence=self._next_sequence, time=time.time() if at is None else at, event=event)
        self._waiting += _encode(record) + b"\n"
        self._next_sequence += 1
        self._write(most_waiting=_MOST_WAITING_BYTES)
        return record

    @property
    def is_waiting(self) -> bool:
        """Whether events are kept in memory because the disk is full."""
        return bool(self._waiting)

    def sync(self) -> None:
        """Flush written events to the disk, to survive a power cut; events that a full disk refuses stay in memory."""
        self._write(most_waiting=_MOST_WAITING_BYTES)
        os.fsync(self._file)

    def finish(self, patience_s: float = _LAST_S) -> None:
        """Write the events that are still in memory; EventLogError if the disk stays full for `patience_s`."""
        deadline = time.monotonic() + patience_s
        while self._waiting:
            self._write(most_waiting=_MOST_WAITING_BYTES if time.monotonic() < deadline else 0)
            if self._waiting:
                time.sleep(_LOOK_S)
        os.fsync(self._file)

    def _write(self, *, most_waiting: int) -> None:
        """Write all waiting events in one call. Whole lines of a partial write stay: a reader may have read them."""
        if not self._waiting:
            return
        before, whole = os.fstat(self._file).st_size, 0
        try:
            written = os.write(self._file, self._waiting)
            if written < len(self._waiting):  # the disk became full during the write
                whole = self._waiting.rfind(b"\n", 0, written) + 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.ftruncate(self._file, before + whole)
            self._waiting = self._waiting[whole:]
            if is_full(error) and len(self._waiting) <= most_waiting:
                return
            raise EventLogError(
                f"{self.path} cannot be written: {error.strerror}",
                fix=f"free space on the disk that holds {self.path.parent}, then go on with --resume",
            ) from error
        self._waiting = b""

    def close(self) -> None:
        """Close the file, which releases its lock. Closing twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _forget_in_child() -> None:
    """Close inherited logs after a fork: a data-loading child must not keep a run locked after its trainer has died."""
    for log in list(_open_logs):
        log.close()


_open_logs: "WeakSet[EventLog]" = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def read_records(path: Path) -> "Iterator[Record]":
    """Yield the file's events in order. Reading stops quietly at a half-written last line, and nowhere else."""
    with open_events(path) as file:
        number = 0
        while line := file.readline(MOST_LINE_BYTES + 1):
            number += 1
            if len(line) > MOST_LINE_BYTES:
                raise line_too_long(path, number)
            if not line.endswith(b"\n"):
                return
            record = read_line(line, path, number)
            if record is not None:
                yield record


def read_last_records(path: Path, most_bytes: int) -> "list[Record]":
    """The events in the whole lines of a file's last `most_bytes`: enough to see how far a long run is."""
    with open_events(path) as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - most_bytes)
        file.seek(start)
        content = file.read(most_bytes)
    if start:
        content = content[content.find(b"\n") + 1 :]
    return parse_lines(content[: content.rfind(b"\n") + 1], path)


def read_first_records(path: Path, most_bytes: int) -> "list[Record]":
    """The events in the whole lines of a file's first `most_bytes`."""
    with open_events(path) as file:
        content = file.read(most_bytes)
    return parse_lines(content[: content.rfind(b"\n") + 1], path)


def _not_writable(path: Path, error: OSError) -> EventLogError:
    quoted = quote(path)
    return EventLogError(
        f"{path} cannot be written: {what_happened(error)}",
        fix=f"see what is there: ls -ld {quoted}; then move it away: mv {quoted} {quoted}.damaged",
    )


def _repair(file: int, path: Path) -> int:
    """Cut a half-written last line off and return the last sequence number, -1 for an empty file."""
    size = os.fstat(file).st_size
    tail = b""
    while len(tail) < size and tail.rstrip(b"\n").count(b"\n") < 2:  # the last whole line, and what follows it
        step = min(_TAIL_BYTES, size - len(tail))
        os.lseek(file, size - len(tail) - step, os.SEEK_SET)  # writes go to the end all the same
        tail = os.read(file, step) + tail
    whole = tail.rfind(b"\n") + 1
    if whole < len(tail):
        os.ftruncate(file, size - len(tail) + whole)
    lines = tail[:whole].rstrip(b"\n").split(b"\n") if whole else []
    if not lines:
        return -1
    try:
        envelope: Any = msgspec.json.decode(lines[-1])
    except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError):
        envelope = None
    match envelope:
        case {"sequence": int(last)}:
            return last
    raise EventLogError(f"the last line of {path} is not an event", fix=f"remove it: sed -i '$d' {quote(path)}")
