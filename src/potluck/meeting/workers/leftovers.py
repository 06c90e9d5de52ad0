"""Runs in the fork server: ends workers that a killed fork server left behind, found by the lock that they hold."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from potluck.core.file_lock import is_held_by_another

_POLL_S = 0.02


def end_leftover(lock_file: Path, *, patience_s: float = 5.0) -> bool:
    """End the process group that holds the lock, if one does: SIGTERM, then SIGKILL. Returns whether the lock is free.

    A held lock proves that the group lives, so the process id in the file cannot be another process's by now.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        holder = _holder(lock_file)
        if holder is None:
            return True
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(holder, number)
        deadline = time.monotonic() + patience_s
        while _holder(lock_file) is not None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    return _holder(lock_file) is None


def _holder(lock_file: Path) -> int | None:
    """The process group that holds the lock."""
    try:
        with lock_file.open("rb") as lock:
            if is_held_by_another(lock.fileno()):
                return int(lock.read() or 0) or None
    except FileNotFoundError:
        pass
    return None
