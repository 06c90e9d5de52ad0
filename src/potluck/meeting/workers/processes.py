"""Runs in the fork server: starts one run's workers, restarts them a few times if they crash, and stops them."""

import signal
import time
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from potluck.core.disk import is_full
from potluck.core.errors import RunFolderError
from potluck.core.states import ENDED, Ending, ProcessPhase
from potluck.meeting.workers.crash import crash_text, read_tail
from potluck.meeting.workers.leftovers import end_leftover
from potluck.meeting.workers.main import REFUSED, TRY_LATER, work
from potluck.meeting.workers.messages import (
    STEP_S,
    BuiltInTask,
    PlainTask,
    ScriptTask,
    StartWorkers,
    WorkerNews,
)

if TYPE_CHECKING:
    from potluck.meeting.workers.supervision import Ended, LogFiles, SupervisedFork

_POLL_S = 0.05
_PLAIN_END_S = 4.0  # each for SIGINT and SIGTERM, which a script that waits for other machines may not heed
_ORDERLY_STOPS = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # the engine's exit codes after a stop was asked for
_ASKED_FOR = (-signal.SIGINT, -signal.SIGTERM, -signal.SIGKILL)
_VARIABLES = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}  # logs without delay, a stack on a segmentation fault


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRules:
    """How often, and how soon, a crashed worker is started again."""

    most: int = 3
    first_delay_s: float = 1.0
    longest_delay_s: float = 30.0
    forgiven_after_s: float = 600.0
    """A worker that ran this long without a crash has all its restarts again."""

    full_disk_delay_s: float | None = 5.0
    """Delay before the restart of a worker that a full disk ended; such restarts do not count towards `most`.
    None: there is no such restart."""

    @classmethod
    def of(cls, task: BuiltInTask | ScriptTask | PlainTask) -> "RestartRules":
        """None for a plain script: a worker that starts again would not find its way back into the others' groups."""
        return cls(most=0, full_disk_delay_s=None) if isinstance(task, PlainTask) else cls()

    def delay_s(self, num_restarts: int) -> float:
        """first * 2^n, up to the longest."""
        return min(self.longest_delay_s, self.first_delay_s * 2.0 ** min(num_restarts, 60))


@dataclass(slots=True, kw_only=True)
class _Worker:
    number: int
    name: str
    phase: ProcessPhase = "waiting"
    message: str = ""
    """Its last crash, kept after the restart: a display that asks rarely must see it too."""

    process: "SupervisedFork | None" = None
    files: "LogFiles | None" = None
    num_starts: int = 0
    num_restarts: int = 0
    started_at: float = 0.0
    start_at: float = 0.0
    told: WorkerNews | None = None


def judge(exit_code: int, *, stopping: bool) -> Ending:
    """Classify an exit code; `failed` is a crash."""
    if exit_code == 0:
        return "finished"
    if exit_code in _ORDERLY_STOPS or (stopping and exit_code in _ASKED_FOR):
        return "stopped"
    return "failed"


class WorkerProcesses:
    """The workers of one run on this machine. Call `poll` regularly from the main thread: it also starts workers."""

    def __init__(self, wanted: StartWorkers, restarts: RestartRules | None = None) -> None:
        self._wanted = wanted
        self._logs = Path(wanted.run_folder) / "logs"
        self._rules = restarts or RestartRules.of(wanted.task)
        self._workers = [_Worker(number=number, name=f"{wanted.machine}-{number}") for number in wanted.workers]
        self._is_stopping = False
        self._has_asked = False
        self._has_pressed = False
        self._harder_at = float("inf")
        """When a plain script that does not end gets the next stronger signal."""

    def poll(self) -> list[WorkerNews]:
        """Start or restart workers that are due, and see which have ended; returns the changes since the last call."""
        self._look()
        self._press()
        news = []
        for worker in self._workers:
            now = self._news(worker)
            if now != worker.told:
                worker.told = now
                news.append(now)
        return news

    def ask_to_stop(self) -> None:
        """Send SIGINT, after which a worker ends with its step; no worker is restarted. Returns at once.

        SIGINT is sent only once: a second one tells a worker not to finish its step.
        """
        if not self._has_asked:
            self._has_asked = True
            self._signal_all(signal.SIGINT)
            if isinstance(self._wanted.task, PlainTask):
                self._harder_at = time.monotonic() + _PLAIN_END_S

    def stop(self, *, after_step: bool = True, step_s: float = STEP_S, end_s: float = 5.0) -> None:
        """End all workers and the processes that they have started.

        With `after_step`: SIGINT, then `step_s` for the step and a checkpoint. After that, or at once, SIGTERM;
        after `end_s`, SIGKILL.
        """
        for number, patience_s in [(signal.SIGINT, step_s)] * after_step + [(signal.SIGTERM, end_s)]:
            if all(worker.phase in ENDED for worker in self._workers):
                break
            self.ask_to_stop() if number == signal.SIGINT else self._signal_all(number)
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline and any(worker.process for worker in self._workers):
                time.sleep(_POLL_S)
                self._look()
        for worker in self._workers:
            if worker.process is not None:
                worker.process.kill()
        self._look()

    def _press(self) -> None:
        """End a plain script that has not ended after SIGINT: SIGTERM, then SIGKILL."""
        if time.monotonic() < self._harder_at:
            return
        is_last = self._has_pressed
        self._has_pressed, self._harder_at = True, time.monotonic() + _PLAIN_END_S
        for worker in self._workers:
            if worker.process is not None:
                worker.process.kill() if is_last else worker.process.signal(signal.SIGTERM)

    def _signal_all(self, number: signal.Signals) -> None:
        self._is_stopping = True
        for worker in self._workers:
            if worker.process is not None:
                worker.process.signal(number)
            elif worker.phase == "waiting":
                worker.phase, worker.message = "stopped", ""

    def _look(self) -> None:
        for worker in self._workers:
            if worker.phase == "waiting" and time.monotonic() >= worker.start_at:
                self._start(worker)
            elif worker.process is not None and (ended := worker.process.poll()) is not None:
                self._take_end(worker, ended)

    def _news(self, worker: _Worker) -> WorkerNews:
        """A worker's state for the agent; one that waits for its start or restart counts as running."""
        return WorkerNews(
            run=self._wanted.run,
            worker=worker.number,
            state="running" if worker.phase == "waiting" else worker.phase,
            message=worker.message,
            restarts=max(0, worker.num_starts - 1),
        )

    def _start(self, worker: _Worker) -> None:
        from potluck.meeting.workers.supervision import LogFiles, SupervisedFork  # noqa: PLC0415  torch takes seconds

        wanted = self._wanted
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            # New file names for every start: a file that is being sent to the host must never be truncated.
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
            folder, variables = Path(wanted.folder), {**_VARIABLES, **wanted.workers[worker.number]}
            worker.process = SupervisedFork(partial(work, wanted.task, folder), variables, folder, worker.files)
        except OSError as error:
            if is_full(error) and self._rules.full_disk_delay_s is not None:
                worker.start_at = time.monotonic() + self._rules.full_disk_delay_s
                return
            trouble = RunFolderError(
                f"worker {worker.name} cannot be started on {wanted.machine}: {error.strerror}: {error.filename}",
                fix=f"check space and rights on {wanted.machine}: df -h {self._logs}; ls -ld {self._logs}",
            )
            worker.phase, worker.message = "failed", str(trouble)
            return
        worker.phase = "running"
        worker.started_at = time.monotonic()
        worker.num_starts += 1

    def _take_end(self, worker: _Worker, ended: "Ended") -> None:
        """Classify a worker's end; after a crash, schedule a restart if one is left."""
        assert worker.files is not None
        worker.process = None
        worker.phase = judge(ended.exit_code, stopping=self._is_stopping)
        if worker.phase != "failed":
            return
        stderr = read_tail(worker.files.err)
        worker.message = crash_text(ended.exit_code, stderr, ended.recorded_traceback, folder=Path(self._wanted.folder))
        now = time.monotonic()
        if now - worker.started_at >= self._rules.forgiven_after_s:
            worker.num_restarts = 0
        if self._is_stopping or ended.exit_code == REFUSED:
            return
        if ended.exit_code == TRY_LATER and self._rules.full_disk_delay_s is not None:
            worker.phase = "waiting"
            worker.start_at = now + self._rules.full_disk_delay_s
        elif worker.num_restarts < self._rules.most:
            worker.phase = "waiting"
            worker.start_at = now + self._rules.delay_s(worker.num_restarts)
            worker.num_restarts += 1
