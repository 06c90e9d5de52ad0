"""Runs in the fork server: one worker process under torch's own supervision, which also serves torchrun."""

import json
import logging
import os
import pickle
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.elastic.multiprocessing import start_processes
from torch.distributed.elastic.multiprocessing.api import LogsDest, LogsSpecs, MultiprocessContext

from potluck.meeting.workers.bootstrap import live

# Every signal sent and every end would be a warning on the terminal; who started the worker tells it in one line.
logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.CRITICAL)

_KILL_S = 10  # for the kernel; a process that hangs in a driver may take longer, and is left to it

_TAKEN_BY_TORCH = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """Where one attempt of a worker writes."""

    out: Path
    err: Path
    error: Path
    """What torch's `record` leaves of the worker's last exception."""

    lock: Path
    """Held by the worker while it lives."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    exit_code: int
    recorded_traceback: str


class SupervisedFork:
    """A function in a fork of this process: what is imported here is there at once. Only from the main thread.

    The kernel interrupts the fork when the thread that made it ends, so that it does not outlive this process.
    """

    def __init__(
        self, function: Callable[[], None], variables: Mapping[str, str], folder: Path, files: LogFiles
    ) -> None:
        self._files = files
        arguments = (function, str(folder), str(files.lock))
        before = {number: signal.getsignal(number) for number in _TAKEN_BY_TORCH}
        # What is sent before the fork has its own handlers waits until it has; see bootstrap.py.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN_BY_TORCH)
        try:
            self._context = start_processes(
                "worker", live, {0: arguments}, {0: dict(variables)}, _LogsHere(files), start_method="fork"
            )
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)

    def poll(self) -> Ended | None:
        """How it ended, or None while it runs. Whatever it has started is then ended too."""
        try:
            result = self._context.wait(0)
        except (EOFError, pickle.UnpicklingError, ValueError):  # killed while it wrote its last exception for torch
            assert isinstance(self._context, MultiprocessContext)
            assert self._context._pc is not None
            exit_code = self._context._pc.processes[0].exitcode  # nothing public tells it then
        else:
            if result is None:
                return None
            exit_code = result.failures[0].exitcode if result.is_failed() else 0
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process_id, signal.SIGKILL)
        return Ended(exit_code, _read_traceback(self._files.error) if exit_code else "")

    def kill(self) -> None:
        """End it and all that it has started, at once."""
        self._context.close(signal.SIGKILL, _KILL_S)

    def signal(self, number: signal.Signals) -> None:
        """Send it to this process alone; one that has ended is left in peace."""
        with suppress(ProcessLookupError):
            os.kill(self._process_id, number)

    @property
    def _process_id(self) -> int:
        return self._context.pids()[0]


def _read_traceback(file: Path) -> str:
    """What the worker recorded of its last exception; one that was killed may have left nothing, or half of it."""
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return ""
    match data:
        case {"message": {"extraInfo": {"py_callstack": str(recorded)}}}:
            return recorded
    return ""


class _LogsHere(LogsSpecs):
    """torch's own names for log files say nothing about the worker."""

    def __init__(self, files: LogFiles) -> None:
        super().__init__()
        self._files = files

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        envs[0]["TORCHELASTIC_ERROR_FILE"] = str(self._files.error)
        return LogsDest(
            stdouts={0: str(self._files.out)},
            stderrs={0: str(self._files.err)},
            error_files={0: ""},  # torch would stumble over half a file, and never see the end of that worker
        )

    @property
    def root_log_dir(self) -> str:
        return str(self._files.out.parent)
