"""Reads an event file while a worker appends to it: each call returns only new events, one block at a time."""

from pathlib import Path

from potluck.events.lines import MOST_LINE_BYTES, line_too_long, open_events, parse_lines
from potluck.events.types import Record

BLOCK_BYTES = 1 << 18  # a few hundred events, so that following hundreds of files takes little memory


class FollowedFile:
    """One worker's event file, and how far it has been read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._num_lines = 0

    def read(self) -> list[Record]:
        """Return the events in the next block of whole lines; an empty list if no whole line is new.

        A half-written last line is left for a later call. If the file is now shorter than what was read, another file
        has taken its name, and reading starts over.
        """
        while True:
            lines = self._next_block()
            records = parse_lines(lines, self.path, self._num_lines + 1)
            self._offset += len(lines)
            self._num_lines += lines.count(b"\n")
            if records or not lines:  # a block that has only unknown kinds of events is not the end of the file
                return records

    def _next_block(self) -> bytes:
        with open_events(self.path) as file:
            if file.seek(0, 2) < self._offset:
                self._offset = self._num_lines = 0
            file.seek(self._offset)
            content = file.read(BLOCK_BYTES)
            while (whole := content.rfind(b"\n") + 1) == 0 and (more := file.read(BLOCK_BYTES)):
                content += more
                if len(content) > MOST_LINE_BYTES + BLOCK_BYTES:
                    raise line_too_long(self.path, self._num_lines + 1)
        return content[:whole]
