"""The processes of a plain script on this machine: started together, watched, and ended with all that they started."""

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from potluck.meeting.workers.crash import read_tail

_POLL_S = 0.05
_END_S = 4.0  # each for SIGINT and SIGTERM
_EFFECTS_S = 2.0  # after the first failure: others that fail within it may tell the cause
_PIPE_BYTES = 1 << 16  # as much as a pipe holds: one read takes all that a process has left in it


class PlainProcesses:
    """One process for each rank. Each has a session of its own: what the script starts there ends with it."""

    def __init__(self, folder: Path, *, is_alone: bool) -> None:
        self._folder = folder
        self._is_alone = is_alone
        self._processes: list[subprocess.Popen[bytes]] = []
        self._copies: list[threading.Thread] = []
        self._has_ended = threading.Event()

    def start(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start the process of the next rank. The terminal shows what rank 0 writes to stderr; `said_by` has all."""
        rank = len(self._processes)
        process = subprocess.Popen(  # noqa: S603  no shell: the user's own script
            command,
            env=variables,
            start_new_session=True,  # Ctrl-C comes to this process, which passes it on
            stderr=None if self._is_alone else subprocess.PIPE,
        )
        self._processes.append(process)
        if process.stderr is not None:
            copy = threading.Thread(target=self._copy, args=(process.stderr, self._file(rank), rank == 0))
            copy.start()
            self._copies.append(copy)

    def wait(self, is_stopped: Callable[[], bool]) -> dict[int, int]:
        """Wait until all have ended, or `is_stopped`; the exit codes of those that failed, in the order of their ends.

        After a failure it waits only a moment longer: the others may never end without the one that failed.
        """
        failed: dict[int, int] = {}
        deadline = float("inf")
        while not is_stopped():
            codes = [one.poll() for one in self._processes]
            failed |= {rank: code for rank, code in enumerate(codes) if code and rank not in failed}
            if None not in codes or time.monotonic() > deadline:
                break
            if failed and deadline == float("inf"):
                deadline = time.monotonic() + _EFFECTS_S
            time.sleep(_POLL_S)
        return failed

    def end(self, is_hurried: Callable[[], bool]) -> None:
        """End those that still run, each with its process group: SIGINT, then SIGTERM, then SIGKILL.

        SIGKILL goes to every group, and at once if `is_hurried`: what the script started may outlive its own process.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            living = [one for one in self._processes if one.poll() is None]
            _signal_groups(living, number)
            deadline = time.monotonic() + _END_S
            while any(one.poll() is None for one in living) and time.monotonic() < deadline and not is_hurried():
                time.sleep(_POLL_S)
        _signal_groups(self._processes, signal.SIGKILL)
        for one in self._processes:
            one.wait()
        self._has_ended.set()
        for copy in self._copies:
            copy.join()

    def said_by(self, rank: int) -> str:
        """The end of what that rank wrote to stderr, without the prefix that torch gives to its traceback."""
        return read_tail(self._file(rank)).replace(f"[rank{rank}]: ", "")

    def _file(self, rank: int) -> Path:
        return self._folder / f"{rank}.err"

    def _copy(self, source: IO[bytes], file: Path, is_shown: bool) -> None:
        """Copy until the pipe is closed, or the processes have ended: one that left its session may hold the pipe."""
        with source, file.open("wb", buffering=0) as kept, selectors.DefaultSelector() as selector:
            selector.register(source, selectors.EVENT_READ)
            while True:
                is_last = self._has_ended.is_set()
                if selector.select(0 if is_last else _POLL_S):
                    content = os.read(source.fileno(), _PIPE_BYTES)
                    kept.write(content)
                    if is_shown:
                        sys.stderr.buffer.write(content)
                        sys.stderr.flush()
                    is_last |= not content
                if is_last:
                    return


def _signal_groups(processes: Sequence["subprocess.Popen[bytes]"], number: signal.Signals) -> None:
    for one in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(one.pid, number)


@contextmanager
def counted_stops() -> Iterator[Callable[[], int]]:
    """Inside, SIGINT, SIGTERM and SIGHUP interrupt nothing, so that no process stays behind; they are counted.

    A signal that this process ignores, as SIGHUP under nohup, stays ignored.
    """
    num_stops = 0

    def count(*_: object) -> None:
        nonlocal num_stops
        num_stops += 1

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {one: handler for one in numbers if (handler := signal.getsignal(one)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, count)
    try:
        yield lambda: num_stops
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
