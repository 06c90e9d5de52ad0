"""Whether a process trains a run: it locks a file in the run's folder, and the kernel frees the lock when it dies."""

import os
from contextlib import suppress
from pathlib import Path

from potluck.core.errors import EventLogError
from potluck.core.file_lock import is_held_by_another, try_hold
from potluck.core.plain_file import OWN_BYTES
from potluck.core.run_folder import RunFolder
from potluck.events.lines import open_events
from potluck.events.state import RunState

_WAIT_S = 1.0


def is_alive(folder: RunFolder) -> bool:
    """Whether a process on this machine locks an event file of the run (a worker), or host.lock (the run's host)."""
    return any(is_held(file) for file in (*folder.event_files(), folder.host_lock_file))


def status_of(folder: RunFolder, state: RunState) -> str:
    """The status of the run in one word: running, finished, stopped, failed, diverged or interrupted.

    diverged: finished with a loss that is not a number or far too high. interrupted: no process trains the run, and
    the worker of `state` wrote no RunEnded event.
    """
    if is_alive(folder):
        return "running"
    return "diverged" if state.ended == "finished" and state.diverged_since else state.ended or "interrupted"


def hold(file: int, path: Path) -> None:
    """Lock an open file for this process until the file is closed; EventLogError if another process keeps the lock."""
    # `is_held` in another process takes a shared lock for a moment, so the first refusal is not final.
    if not try_hold(file, wait_s=_WAIT_S):
        raise EventLogError(
            f"another process is training this run: it holds {path}",
            fix="wait for it, stop it, or choose another name",
        )


class HostLocks:
    """The host.lock files of runs that have not ended: the kernel frees them when the host's process ends or dies."""

    def __init__(self) -> None:
        self._files: dict[Path, int] = {}

    def note(self, folder: RunFolder, *, goes_on: bool) -> None:
        """Lock the run's host.lock while the run goes on, else remove it; a lock that cannot be taken is skipped."""
        path = folder.host_lock_file
        if goes_on and path not in self._files:
            with suppress(OSError, EventLogError):
                self._files[path] = self._take(path)
        elif not goes_on and path in self._files:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(self._files.pop(path))

    @staticmethod
    def _take(path: Path) -> int:
        file = os.open(path, os.O_RDWR | os.O_CREAT | OWN_BYTES, 0o644)
        try:
            hold(file, path)
        except BaseException:
            os.close(file)
            raise
        return file


def is_held(path: Path) -> bool:
    """Whether a live process on this machine has locked the file."""
    try:
        with open_events(path) as file:
            return is_held_by_another(file.fileno())
    except EventLogError:  # the file is missing, unreadable or not a plain file
        return False
