"""Uploads this machine's checkpoints to the host, a part at a time."""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from potluck.core.checkpoint_names import checkpoint_files
from potluck.core.run_folder import RunFolder
from potluck.meeting.client.client import HostClient
from potluck.meeting.transfer.arrivals import PART_BYTES

_READ_BYTES = 1 << 20


class _Upload(NamedTuple):
    """A checkpoint at the moment when it was chosen: newer checkpoints may replace its file at any time."""

    path: Path
    identity: tuple[str, int]
    digest: str
    size: int


class CheckpointUpload:
    """Uploads one file at a time, the oldest first, so that the newest is the last to arrive."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._sent: set[tuple[str, int]] = set()
        self._current: _Upload | None = None
        self._offset = 0

    def advance(self, client: HostClient, run: str) -> bool:
        """Send one part; returns whether there is more to send."""
        try:
            if self._current is None:
                self._current, self._offset = self._next(), 0
            if self._current is None:
                return False
            with self._current.path.open("rb") as file:
                file.seek(self._offset)
                part = file.read(PART_BYTES)
        except FileNotFoundError:  # newer checkpoints have replaced it
            self._current = None
            return True
        path, identity, digest, size = self._current
        query = f"offset={self._offset}&total={size}&sha256={digest}"
        answer = client.send("PUT", f"/runs/{run}/checkpoints/{path.name}?{query}", part)
        self._offset = int(json.loads(answer)["size"])
        if self._offset >= size:
            self._sent.add(identity)
            self._current = None
        elif self._offset == 0:
            self._current = None  # it arrived damaged, or the file was replaced during the upload: read it again
        return True

    def _next(self) -> _Upload | None:
        found = {path: path.stat() for path in checkpoint_files(self._folder.checkpoints_dir)}
        new = {path: stat for path, stat in found.items() if (path.name, stat.st_mtime_ns) not in self._sent}
        if not new:
            return None
        path = min(new, key=lambda one: new[one].st_mtime_ns)
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                digest.update(chunk)
        return _Upload(path, (path.name, new[path].st_mtime_ns), digest.hexdigest(), new[path].st_size)
