"""The checkpoints of a run: the newest whole one, the last few kept, written in the background."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potluck.core.atomic import clear_leftovers
from potluck.core.checkpoint_names import checkpoint_files
from potluck.core.errors import CheckpointError
from potluck.engine.checkpoints.checkpoint_file import check_whole, plain, write_checkpoint


def newest_whole(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The newest checkpoint that matches its checksum; a word is said about each that doesn't."""
    for path in checkpoint_files(folder):
        try:
            check_whole(path)
        except CheckpointError as error:
            say(f"{error.args[0]}: skipped, an older one is tried")
        else:
            return path
    return None


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that has reached the disk."""

    step: int
    path: Path
    num_bytes: int
    seconds: float


class CheckpointWriter:
    """Copies the state at once and writes it in the background; one write at a time, the next waits for it."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self._folder = folder
        self._keep = keep
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="potluck-checkpoint")
        self._writing: Future[Saved] | None = None
        clear_leftovers(folder)

    def save(self, name: str, step: int, state: dict[str, Any]) -> Saved | None:
        """Begin to write; return the previous checkpoint if its write was still to be waited for."""
        snapshot = plain(state)
        previous = self.wait()
        self._writing = self._thread.submit(self._write, self._folder / name, step, snapshot)
        return previous

    def save_now(self, name: str, step: int, state: dict[str, Any]) -> Saved:
        """Write and wait: also possible while the process ends, when no thread can be asked any more."""
        return self._write(self._folder / name, step, plain(state))

    def poll(self) -> Saved | None:
        """The checkpoint that has reached the disk since the last look, if one has."""
        return self.wait() if self._writing is not None and self._writing.done() else None

    def wait(self) -> Saved | None:
        """Wait for the write under way, and raise what it raised."""
        writing, self._writing = self._writing, None
        return None if writing is None else writing.result()

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def _write(self, path: Path, step: int, state: dict[str, Any]) -> Saved:
        started = time.monotonic()
        num_bytes = write_checkpoint(path, state)
        files = checkpoint_files(self._folder)
        # A damaged file may claim a later step than this one: only what is older than this one goes.
        for old in files[files.index(path) + self._keep :]:
            old.unlink(missing_ok=True)
        return Saved(step, path, num_bytes, time.monotonic() - started)
