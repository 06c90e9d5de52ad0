"""Finds the newest BackendChosen event of a run, whose event files may be long."""

from contextlib import suppress
from pathlib import Path

from potluck.core.errors import EventLogError
from potluck.core.run_folder import RunFolder
from potluck.events.lines import MOST_LINE_BYTES, open_events, parse_lines
from potluck.events.types import BackendChosen

_MARK = b'"backend_chosen"'
_CHUNK_BYTES = MOST_LINE_BYTES  # no line is longer


class BackendFinder:
    """Follows a run's event files; every look reads only what is new, and parses only lines that may be such events."""

    def __init__(self, folder: Path) -> None:
        self._folder = RunFolder(folder)
        self._offsets: dict[Path, int] = {}
        self._newest: BackendChosen | None = None

    def look(self) -> BackendChosen | None:
        """The event with the highest step so far; of a resumed run's repeated steps, the one that was read last."""
        for file in self._folder.event_files():
            with suppress(EventLogError, OSError):  # one damaged file must not hide the other workers
                self._read(file)
        return self._newest

    def _read(self, path: Path) -> None:
        with open_events(path) as file:
            file.seek(self._offsets.get(path, 0))
            while whole := _whole_lines(file.read(_CHUNK_BYTES)):
                self._offsets[path] = self._offsets.get(path, 0) + len(whole)
                file.seek(self._offsets[path])
                for line in whole.splitlines() if _MARK in whole else []:
                    self._take(line, path)

    def _take(self, line: bytes, path: Path) -> None:
        if _MARK not in line:
            return
        for record in parse_lines(line, path):
            is_newer = self._newest is None or getattr(record.event, "step", 0) >= self._newest.step
            if isinstance(record.event, BackendChosen) and is_newer:
                self._newest = record.event


def _whole_lines(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]
