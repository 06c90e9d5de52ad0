"""Whether somebody trains a run: a lock on a file in its folder, which the kernel takes back when its holder dies."""

import os
from contextlib import suppress
from pathlib import Path

from potluck.core.errors import EventLogError
from potluck.core.file_lock import is_held_by_another, try_hold
from potluck.core.run_folder import RunFolder
from potluck.events.lines import open_events
from potluck.events.state import RunState

_WAIT_S = 1.0


def is_alive(folder: RunFolder) -> bool:
    """Whether a process of this machine writes the run's events, or its host here says that others do."""
    return any(is_held(file) for file in (*folder.event_files(), folder.host_lock_file))


def status_of(folder: RunFolder, state: RunState) -> str:
    """Whether the run goes on, and what became of it if it does not.

    finished; diverged: finished with a loss that is not a number or far too high; stopped; failed; running;
    interrupted: no process trains it and none said goodbye.
    """
    if is_alive(folder):
        return "running"
    return "diverged" if state.ended == "finished" and state.diverged_since else state.ended or "interrupted"


def hold(file: int, path: Path) -> None:
    """Be the one process that holds an open file, for as long as it is open."""
    # Somebody who only asks whether the run is alive holds the lock for a moment.
    if not try_hold(file, wait_s=_WAIT_S):
        raise EventLogError(
            f"another process is training this run: it holds {path}",
            fix="wait for it, stop it, or choose another name",
        )


class HostLocks:
    """A host's word that runs go on somewhere: it ends with the host, however that ends."""

    def __init__(self) -> None:
        self._files: dict[Path, int] = {}

    def note(self, folder: RunFolder, *, goes_on: bool) -> None:
        """Say that a run goes on, or no more; a folder that cannot be written to is told of by nobody."""
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
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            hold(file, path)
        except BaseException:
            os.close(file)
            raise
        return file


def is_held(path: Path) -> bool:
    """Whether a live process of this machine holds the file."""
    try:
        with open_events(path) as file:
            return is_held_by_another(file.fileno())
    except EventLogError:  # it is not there, or nothing that a process could hold
        return False
