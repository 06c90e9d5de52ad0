"""Runs in the fork server: one worker process under the supervision of torch's elastic module, as under torchrun."""

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

# torch would print a warning for every signal sent and every end; Potluck prints one line of its own.
logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.CRITICAL)

_KILL_S = 10  # a process that hangs in a driver may take longer, and is left to the kernel

_TAKEN_BY_TORCH = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """The files of one start of a worker."""

    out: Path
    err: Path
    error: Path
    """The worker's last exception, as torch records it."""

    lock: Path
    """Held by the worker while it lives."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    exit_code: int
    recorded_traceback: str


class SupervisedFork:
    """Runs a function in a fork of this process, with everything imported already. Make it in the main thread only.

    The kernel sends SIGINT to the fork when the thread that made it ends, so that it does not outlive this process.
    """

    def __init__(
        self, function: Callable[[], None], variables: Mapping[str, str], folder: Path, files: LogFiles
    ) -> None:
        self._files = files
        arguments = (function, str(folder), str(files.lock))
        before = {number: signal.getsignal(number) for number in _TAKEN_BY_TORCH}
        # Signals to the fork wait until it has handlers of its own; see bootstrap.py.
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
        """How the worker ended, or None while it runs. Once it has ended, the rest of its process group is killed."""
        try:
            result = self._context.wait(0)
        except (EOFError, pickle.UnpicklingError, ValueError):  # killed while it sent its last exception to torch
            assert isinstance(self._context, MultiprocessContext)
            assert self._context._pc is not None
            exit_code = self._context._pc.processes[0].exitcode  # no public attribute has it then
        else:
            if result is None:
                return None
            exit_code = result.failures[0].exitcode if result.is_failed() else 0
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process_id, signal.SIGKILL)
        return Ended(exit_code, _read_traceback(self._files.error) if exit_code else "")

    def kill(self) -> None:
        """Kill the worker at once; the next `poll` kills the rest of its process group."""
        self._context.close(signal.SIGKILL, _KILL_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker's process alone; nothing happens if it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self._process_id, number)

    @property
    def _process_id(self) -> int:
        return self._context.pids()[0]


def _read_traceback(file: Path) -> str:
    """The traceback that the worker recorded; empty if a killed worker has left no file, or half of one."""
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return ""
    match data:
        case {"message": {"extraInfo": {"py_callstack": str(recorded)}}}:
            return recorded
    return ""


class _LogsHere(LogsSpecs):
    """Sends a worker's output to `files`: torch's own names for log files say nothing about the worker."""

    def __init__(self, files: LogFiles) -> None:
        super().__init__()
        self._files = files

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        envs[0]["TORCHELASTIC_ERROR_FILE"] = str(self._files.error)
        return LogsDest(
            stdouts={0: str(self._files.out)},
            stderrs={0: str(self._files.err)},
            error_files={0: ""},  # torch would fail on half a file, and never report the end of that worker
        )

    @property
    def root_log_dir(self) -> str:
        return str(self._files.out.parent)
