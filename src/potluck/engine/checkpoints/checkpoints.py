"""A run's checkpoints: written in the background, the last few kept, the newest undamaged one found."""

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
    """The newest checkpoint that matches its checksum; `say` is called for each that does not."""
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
    """Copies the state at once and writes the copy in the background, one checkpoint at a time."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self._folder = folder
        self._keep = keep
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="potluck-checkpoint")
        self._writing: Future[Saved] | None = None
        clear_leftovers(folder)

    def save(self, name: str, step: int, state: dict[str, Any]) -> Saved | None:
        """Start to write, after the previous write has ended; return that checkpoint if `poll` has not returned it."""
        snapshot = plain(state)
        previous = self.wait()
        self._writing = self._thread.submit(self._write, self._folder / name, step, snapshot)
        return previous

    def save_now(self, name: str, step: int, state: dict[str, Any]) -> Saved:
        """Write on this thread; works while the process exits, too, when the background thread takes no more work."""
        return self._write(self._folder / name, step, plain(state))

    def poll(self) -> Saved | None:
        """The checkpoint that has reached the disk since the last call, if any."""
        return self.wait() if self._writing is not None and self._writing.done() else None

    def wait(self) -> Saved | None:
        """Wait for the write in the background, and raise its error if it failed."""
        writing, self._writing = self._writing, None
        return None if writing is None else writing.result()

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def _write(self, path: Path, step: int, state: dict[str, Any]) -> Saved:
        started = time.monotonic()
        num_bytes = write_checkpoint(path, state)
        files = checkpoint_files(self._folder)
        # A damaged file may claim a later step than this checkpoint: delete only older files.
        for old in files[files.index(path) + self._keep :]:
            old.unlink(missing_ok=True)
        return Saved(step, path, num_bytes, time.monotonic() - started)
