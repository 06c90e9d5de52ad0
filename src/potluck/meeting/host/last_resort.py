"""Kills a process and all its descendants, whatever they hang in, at once or at a deadline."""

import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

import psutil

_KILLED_S = 2.0


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all its descendants; a signal to its group would miss those in sessions of their own."""
    with suppress(psutil.NoSuchProcess):
        _kill_all([*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)])
    with suppress(subprocess.TimeoutExpired):  # it hangs in a driver: left to the kernel
        process.wait(_KILLED_S)


def _kill_all(processes: list[psutil.Process]) -> None:
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            one.kill()


class EndBy:
    """Deadline for this process: after `seconds` it is ended with all its descendants, unless it has ended before."""

    def __init__(self, seconds: float, tell: Callable[[str], None]) -> None:
        self._seconds = seconds
        self._tell = tell

    def start(self) -> None:
        threading.Thread(target=self._wait, name="potluck-end", daemon=True).start()

    def _wait(self) -> None:
        threading.Event().wait(self._seconds)
        _kill_all(psutil.Process().children(recursive=True))
        self._tell(f"not everything ended within {self._seconds:.0f} s: what was left has been killed")
        os._exit(1)
