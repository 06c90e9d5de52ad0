"""Checkpoints that this machine has written, on their way to the host, a part at a time."""

import hashlib
import json
from pathlib import Path

from potluck.core.run_folder import RunFolder
from potluck.meeting.arrivals import PART_BYTES
from potluck.meeting.client import HostClient

_READ_BYTES = 1 << 20


class CheckpointUpload:
    """One file at a time, the oldest first, so that the newest is the last to arrive."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._sent: set[tuple[str, int]] = set()
        self._current: tuple[Path, str, int] | None = None
        self._offset = 0

    def advance(self, client: HostClient, run: str) -> bool:
        """Send one part; returns whether there is more to send."""
        if self._current is None:
            self._current = self._next()
            self._offset = 0
        if self._current is None:
            return False
        path, digest, size = self._current
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                part = file.read(PART_BYTES)
        except FileNotFoundError:  # newer ones have taken its place
            self._current = None
            return True
        query = f"offset={self._offset}&total={size}&sha256={digest}"
        answer = client.send("PUT", f"/runs/{run}/checkpoints/{path.name}?{query}", part)
        self._offset = int(json.loads(answer)["size"])
        if self._offset >= size:
            self._sent.add(_identity(path))
            self._current = None
        return True

    def _next(self) -> tuple[Path, str, int] | None:
        files = [
            path for path in self._folder.checkpoints_dir.glob("model_epoch_*.pth") if _identity(path) not in self._sent
        ]
        if not files:
            return None
        path = min(files, key=lambda file: file.stat().st_mtime)
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                digest.update(chunk)
        return path, digest.hexdigest(), path.stat().st_size


def _identity(path: Path) -> tuple[str, int]:
    return path.name, path.stat().st_mtime_ns
