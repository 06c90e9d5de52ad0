"""Parses lines of event files: any line is blank, an event, an unknown kind of event, or an EventLogError."""

from pathlib import Path
from typing import IO

import msgspec

from potluck.core.errors import EventLogError
from potluck.core.plain_file import open_plain, what_happened
from potluck.core.printable import printable_data
from potluck.core.shell_words import quote
from potluck.events.old_notices import MARK, read_old_notice
from potluck.events.types import AnyEvent, Record

MOST_LINE_BYTES = 4 << 20  # a plan for 10,000 workers takes 1 MB
_decoder = msgspec.json.Decoder(Record)
_KNOWN_KINDS = frozenset(kind.__struct_config__.tag for kind in AnyEvent.__args__)
_NOT_AN_EVENT = (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError)


def open_events(path: Path) -> "IO[bytes]":
    """Open an event file for reading; EventLogError if the file is missing, unreadable or not a plain file."""
    try:
        return open_plain(path)
    except OSError as error:
        quoted = quote(path)
        raise EventLogError(
            f"{path} cannot be read: {what_happened(error)}", fix=f"move it away: mv {quoted} {quoted}.damaged"
        ) from None


def parse_lines(lines: bytes, path: Path, first_number: int = 1) -> list[Record]:
    """The events in whole lines of a file; `first_number` is the number of the first line, for error messages."""
    if _is_plain(lines):
        try:
            records = _decoder.decode_lines(lines)
            return [read_old_notice(record) for record in records] if MARK in lines else records
        except _NOT_AN_EVENT:  # damage, or a kind of event from a newer Potluck
            pass
    numbered = enumerate(lines.split(b"\n"), start=first_number)
    return [record for number, line in numbered if (record := read_line(line, path, number)) is not None]


def read_line(line: bytes, path: Path, number: int) -> Record | None:
    """The event in one line, with control characters escaped; None for a blank line or an unknown kind of event."""
    if not line.strip():
        return None
    if len(line) > MOST_LINE_BYTES:
        raise line_too_long(path, number)
    try:
        record = _decoder.decode(line)
        if not _is_plain(line):
            record = msgspec.convert(printable_data(msgspec.to_builtins(record)), Record)
    except _NOT_AN_EVENT as error:
        if _is_unknown_kind(line):
            return None  # a newer Potluck wrote it
        raise _damaged(path, number, f"is damaged: {error}") from None
    return read_old_notice(record) if MARK in line else record


def line_too_long(path: Path, number: int) -> EventLogError:
    """The error for a line that is longer than any event can be."""
    return _damaged(path, number, f"is longer than {MOST_LINE_BYTES} bytes")


def _damaged(path: Path, number: int, what: str) -> EventLogError:
    command = f"sed -i '{number}d' {quote(path)}"
    return EventLogError(
        f"{path}, line {number} {what}",
        fix=f"remove that line ({command}) if losing one event is acceptable, else restore the file",
    )


def _is_plain(lines: bytes) -> bool:
    """Whether no string in the lines can hold a control character: that takes a JSON escape, DEL or non-ASCII bytes."""
    return lines.isascii() and b"\\" not in lines and b"\x7f" not in lines


def _is_unknown_kind(line: bytes) -> bool:
    try:
        data = msgspec.json.decode(line)
    except _NOT_AN_EVENT:
        return False
    match data:
        case {"event": {"type": str(kind)}}:
            return kind not in _KNOWN_KINDS
    return False
