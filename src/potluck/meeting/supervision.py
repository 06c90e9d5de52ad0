"""One worker process under torch's own supervision, which also serves torchrun."""

import atexit
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.elastic.multiprocessing import PContext, start_processes
from torch.distributed.elastic.multiprocessing.api import LogsDest, LogsSpecs, SubprocessContext
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from potluck.meeting.settle_in import settle_in

# Every signal sent and every end would be a warning on the terminal; who started the worker tells it in one line.
logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.CRITICAL)

_KILL_S = 10  # for the kernel; a process that hangs in a driver may take longer, and is left to it

_SETTLE_IN = Path(__file__).with_name("settle_in.py")
_TAKEN_BY_TORCH = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """Where one attempt of a worker writes."""

    out: Path
    err: Path
    error: Path
    """What torch's `record` leaves of an exception, if the program uses it."""

    lock: Path
    """Held by the worker while it lives."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    exit_code: int
    recorded_traceback: str


class _Supervised:
    """What both kinds of worker process share: torch's context around one process in a session of its own."""

    def __init__(self, context: PContext, files: LogFiles) -> None:
        self._context = context
        self._files = files

    @property
    def process_id(self) -> int:
        return self._context.pids()[0]

    def poll(self) -> Ended | None:
        """How it ended, or None while it runs. Whatever it has started is then ended too."""
        try:
            result = self._context.wait(0)
        except (ValueError, KeyError, TypeError):
            self._files.error.unlink(missing_ok=True)  # it was killed while it wrote that
            result = self._context.wait(0)
        if result is None:
            return None
        self._clean_up()
        failure = result.failures.get(0)
        if failure is None:
            return Ended(0, "")
        match failure.error_file_data:
            case {"message": {"extraInfo": {"py_callstack": str(recorded)}}}:
                return Ended(failure.exitcode, recorded)
        return Ended(failure.exitcode, "")

    def kill(self) -> None:
        """End it and all that it has started, at once."""
        self._context.close(signal.SIGKILL, _KILL_S)

    def _clean_up(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process_id, signal.SIGKILL)


class SupervisedProgram(_Supervised):
    """A program. Its environment is this process's and `variables`; its output goes to files."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], folder: Path, files: LogFiles) -> None:
        arguments = ("-I", "-S", str(_SETTLE_IN), str(files.lock), str(folder), *command)
        # Started from the main thread, torch would put its signal handlers in the place of ours.
        with ThreadPoolExecutor(1) as aside:
            super().__init__(aside.submit(_start, arguments, dict(variables), files).result(), files)

    def signal(self, number: signal.Signals) -> None:
        """Send it to this process alone; one that has ended is left in peace."""
        self._handler.proc.send_signal(number)

    @property
    def _handler(self) -> SubprocessHandler:
        assert isinstance(self._context, SubprocessContext)
        return self._context.subprocess_handlers[0]

    def _clean_up(self) -> None:
        super()._clean_up()
        for stream in (self._handler._stdout, self._handler._stderr):  # torch closes those of processes it had to end
            assert stream is not None
            stream.close()


class SupervisedFork(_Supervised):
    """A function in a fork of this process: what is imported here is there at once. Only from the main thread.

    The kernel interrupts the fork when the thread that made it ends, so that it does not outlive this process.
    """

    def __init__(
        self, function: Callable[[], None], variables: Mapping[str, str], folder: Path, files: LogFiles
    ) -> None:
        arguments = (function, str(folder), str(files.lock))
        before = {number: signal.getsignal(number) for number in _TAKEN_BY_TORCH}
        try:
            context = start_processes(
                "worker", _live, {0: arguments}, {0: dict(variables)}, _LogsHere(files), start_method="fork"
            )
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        super().__init__(context, files)

    def signal(self, number: signal.Signals) -> None:
        """Send it to this process alone; one that has ended is left in peace."""
        with suppress(ProcessLookupError):
            os.kill(self.process_id, number)


def _live(function: Callable[[], None], folder: str, lock: str) -> None:
    """A fork's life, with the exit codes and the exit handlers that a program would have."""
    os.setsid()
    atexit._clear()  # those of the process that was forked are not this one's to run
    settle_in(lock, folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    try:
        function()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)  # torch would take it for a good end
    except Exception as error:
        sys.last_value = error  # where exit handlers look, as after an interpreter's own last traceback
        raise
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves without; a run that nobody closed closes here
        sys.stdout.flush()
        sys.stderr.flush()


def _start(arguments: tuple[str, ...], variables: dict[str, str], files: LogFiles) -> PContext:
    return start_processes("worker", sys.executable, {0: arguments}, {0: variables}, _LogsHere(files))


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
            error_files={0: str(self._files.error)},
        )

    @property
    def root_log_dir(self) -> str:
        return str(self._files.out.parent)
