"""Reads an event file that grows: each time only what is new, a block at a time."""

from pathlib import Path

from potluck.events.log import parse_lines
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
        with self.path.open("rb") as file:
            if file.seek(0, 2) < self._offset:
                self._offset = self._num_lines = 0
            file.seek(self._offset)
            content = file.read(BLOCK_BYTES)
            while (whole := content.rfind(b"\n") + 1) == 0 and (more := file.read(BLOCK_BYTES)):
                content += more
        lines = content[:whole]
        records = parse_lines(lines, self.path, self._num_lines + 1)
        self._offset += whole
        self._num_lines += lines.count(b"\n")
        # A block of unknown kinds only would look like the end.
        return records or (self.read() if whole else [])
