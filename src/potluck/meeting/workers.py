"""A machine's workers of one run: started, restarted a few times when they crash, stopped gently."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeAlias

from potluck.core.errors import RunFolderError
from potluck.meeting.crash import Crash, last_words, read_tail
from potluck.meeting.leftovers import end_leftover

if TYPE_CHECKING:
    from potluck.meeting.supervision import Ended, LogFiles, SupervisedFork, SupervisedProgram

State: TypeAlias = Literal["running", "waiting", "finished", "stopped", "failed"]

REFUSED = 78  # sysexits.h's EX_CONFIG: a person has to mend something, and the words for it are printed
_POLL_S = 0.05
_ORDERLY_STOPS = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # what the engine ends with after its step
_ASKED_FOR = (-signal.SIGINT, -signal.SIGTERM, -signal.SIGKILL)
_VARIABLES = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}  # logs without delay, a stack on a segmentation fault


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOrder:
    """One worker to run: one process, one device."""

    number: int
    """Its number in the run's files."""

    command: tuple[str, ...] | Callable[[], None]
    """A program and its arguments, which everybody on the machine can see: no secrets. Or a function, to be forked."""

    variables: Mapping[str, str] = field(repr=False)
    """Environment variables beside this process's own; secrets go here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRules:
    """How often, and how soon, a crashed worker is started again."""

    most: int = 3
    first_delay_s: float = 1.0
    longest_delay_s: float = 30.0
    forgiven_after_s: float = 600.0
    """A worker that ran this long without a crash has all its restarts again."""

    def delay_s(self, num_restarts: int) -> float:
        """first * 2^n, up to the longest."""
        return min(self.longest_delay_s, self.first_delay_s * 2.0 ** min(num_restarts, 60))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """Where one worker is."""

    worker: str
    state: State
    """`waiting`: crashed, to be started again."""

    process_id: int | None
    num_starts: int


@dataclass(slots=True, kw_only=True)
class _Worker:
    order: WorkerOrder
    name: str
    state: State = "waiting"
    process: "SupervisedProgram | SupervisedFork | None" = None
    files: "LogFiles | None" = None
    num_starts: int = 0
    num_restarts: int = 0
    started_at: float = 0.0
    start_at: float = 0.0


def judge(exit_code: int, reason: str = "", *, stopping: bool) -> Literal["finished", "stopped", "crashed"]:
    """What an end means. A Python that is asked to stop while it still imports ends by KeyboardInterrupt, code 1."""
    if exit_code == 0:
        return "finished"
    was_asked = exit_code in _ASKED_FOR or reason.startswith("KeyboardInterrupt")
    if exit_code in _ORDERLY_STOPS or (stopping and was_asked):
        return "stopped"
    return "crashed"


class WorkerProcesses:
    """The workers of one run on this machine. Call `poll` every now and then, from one thread."""

    def __init__(
        self,
        machine: str,
        run_folder: Path,
        orders: Sequence[WorkerOrder],
        *,
        folder: Path,
        restarts: RestartRules | None = None,
    ) -> None:
        self._machine = machine
        self._logs = run_folder / "logs"
        self._folder = folder
        self._rules = restarts or RestartRules()
        self._workers = [_Worker(order=order, name=f"{machine}-{order.number}") for order in orders]
        self._stopping = False
        self.first_crash: Crash | None = None
        """The earliest: the others' are often its consequences."""

    def __enter__(self) -> "WorkerProcesses":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(after_step=False)

    @property
    def is_over(self) -> bool:
        """Whether no worker runs or will run."""
        return all(worker.state in ("finished", "stopped", "failed") for worker in self._workers)

    def statuses(self) -> list[WorkerStatus]:
        return [
            WorkerStatus(
                worker=worker.name,
                state=worker.state,
                process_id=None if worker.process is None else worker.process.process_id,
                num_starts=worker.num_starts,
            )
            for worker in self._workers
        ]

    def start(self) -> None:
        """Start all of them."""
        try:
            self._start_those_due()
        except BaseException:
            self.stop(after_step=False)
            raise

    def poll(self) -> list[Crash]:
        """See who has ended and start again who may; returns the crashes since the last call, earliest first."""
        crashes = [
            crash
            for worker in self._workers
            if worker.process is not None
            and (ended := worker.process.poll()) is not None
            and (crash := self._take_end(worker, ended)) is not None
        ]
        crashes.sort(key=lambda crash: crash.time)
        if crashes and (self.first_crash is None or crashes[0].time < self.first_crash.time):
            self.first_crash = crashes[0]
        self._start_those_due()
        return crashes

    def ask_to_stop(self) -> None:
        """SIGINT: a worker leaves after its step. Returns at once; nobody is started again."""
        self._signal_all(signal.SIGINT)

    def stop(self, *, after_step: bool = True, step_s: float = 60.0, end_s: float = 5.0) -> list[Crash]:
        """End all workers and what they have started; returns the crashes of those that did not end in order.

        With `after_step`: SIGINT, and that long for the step and a checkpoint. Then, or at once, SIGTERM;
        after `end_s`, SIGKILL.
        """
        crashes = []
        for number, patience_s in [(signal.SIGINT, step_s)] * after_step + [(signal.SIGTERM, end_s)]:
            if self.is_over:
                break
            self._signal_all(number)
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline and any(worker.process for worker in self._workers):
                time.sleep(_POLL_S)
                crashes += self.poll()
        for worker in self._workers:
            if worker.process is not None:
                worker.process.kill()
        return crashes + self.poll()

    def _signal_all(self, number: signal.Signals) -> None:
        self._stopping = True
        for worker in self._workers:
            if worker.process is not None:
                worker.process.signal(number)
            elif worker.state == "waiting":
                worker.state = "stopped"

    def _start_those_due(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.state == "waiting" and now >= worker.start_at and not self._stopping:
                self._start(worker)

    def _start(self, worker: _Worker) -> None:
        from potluck.meeting.supervision import (  # noqa: PLC0415  torch takes seconds
            LogFiles,
            SupervisedFork,
            SupervisedProgram,
        )

        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            # A new name for every start: files that are being shipped are never begun anew.
            stem = next(
                stem
                for number in count(1)
                if not (self._logs / f"{(stem := f'{worker.name}.start-{number}')}.err.log").exists()
            )
            worker.files = LogFiles(
                out=self._logs / f"{stem}.out.log",
                err=self._logs / f"{stem}.err.log",
                error=self._logs / f"{stem}.error.json",
                lock=self._logs / f"{worker.name}.lock",
            )
            end_leftover(worker.files.lock)
            command, variables = worker.order.command, {**_VARIABLES, **worker.order.variables}
            if isinstance(command, tuple):
                worker.process = SupervisedProgram(command, variables, self._folder, worker.files)
            else:
                worker.process = SupervisedFork(command, variables, self._folder, worker.files)
        except OSError as error:
            worker.state = "failed"
            raise RunFolderError(
                f"worker {worker.name} cannot be started on {self._machine}: {error.strerror}: {error.filename}",
                fix=f"check space and rights on {self._machine}: df -h {self._logs}; ls -ld {self._logs}",
            ) from error
        worker.state = "running"
        worker.started_at = time.monotonic()
        worker.num_starts += 1

    def _take_end(self, worker: _Worker, ended: "Ended") -> Crash | None:
        """Decide what comes after an end; returns the crash if it is one."""
        assert worker.files is not None
        worker.process = None
        reason, traceback = last_words(ended.exit_code, read_tail(worker.files.err), ended.recorded_traceback)
        judgement = judge(ended.exit_code, reason, stopping=self._stopping)
        if judgement != "crashed":
            worker.state = judgement
            return None
        now = time.monotonic()
        if now - worker.started_at >= self._rules.forgiven_after_s:
            worker.num_restarts = 0
        is_final = self._stopping or ended.exit_code == REFUSED
        restarts_left = 0 if is_final else self._rules.most - worker.num_restarts
        if restarts_left > 0:
            worker.state = "waiting"
            worker.start_at = now + self._rules.delay_s(worker.num_restarts)
            worker.num_restarts += 1
        else:
            worker.state = "failed"
        wrote_it = ended.exit_code > 0 and traceback
        return Crash(
            machine=self._machine,
            worker=worker.name,
            time=worker.files.err.stat().st_mtime if wrote_it else time.time(),
            exit_code=ended.exit_code,
            reason=reason,
            traceback=traceback,
            restarts_left=max(0, restarts_left),
            log_file=worker.files.err,
        )
