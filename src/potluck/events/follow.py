"""Reads an event file that grows: each time only what is new, a block at a time."""

from pathlib import Path

from potluck.events.lines import MOST_LINE_BYTES, line_too_long, open_events, parse_lines
from potluck.events.types import Record

BLOCK_BYTES = 1 << 18  # some hundred events: memory stays small with hundreds of files


class FollowedFile:
    """One worker's event file, and how far it has been read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._num_lines = 0

    def read(self) -> list[Record]:
        """The events of the next block of whole lines; none if there is nothing new yet.

        A half-written last line waits for its other half. A file that became shorter than what was read is another
        file under the same name: it is read from the start.
        """
        while True:
            lines = self._next_block()
            records = parse_lines(lines, self.path, self._num_lines + 1)
            self._offset += len(lines)
            self._num_lines += lines.count(b"\n")
            if records or not lines:  # a block of unknown kinds only is not the end
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
