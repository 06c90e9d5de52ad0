"""The self-test's worker processes: each imports torch once, then takes one order after the other."""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType

import msgspec

from potluck.core.environment import with_variables
from potluck.machine.hardware import without_home
from potluck.selftest.orders import AnyAnswer, AnyOrder, Failed

_END_S = 5.0
_LAST_LINES = 3
ORDER_S = 180.0  # timeout of an order: the first one waits for the import of torch
_AFTER_FAILURE_S = 8.0
_LOOK_S = 0.02


class WorkerProcess:
    """One process. Only the thread that made the order may ask for its answer."""

    def __init__(self, folder: Path, number: int) -> None:
        self._errors = folder / f"process{number}.txt"
        self._answers: SimpleQueue[bytes] = SimpleQueue()
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "potluck.probes.selftest.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=with_variables({"PYTHONUNBUFFERED": "1"}),
            )
        self._reader = threading.Thread(target=self._read, name="potluck-selftest", daemon=True)
        self._reader.start()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def order(self, order: AnyOrder) -> None:
        """Give an order; `answer` waits for its result."""
        assert self._process.stdin is not None
        with suppress(OSError):  # the process has ended: `answer` says so
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()

    def answer(self, timeout_s: float) -> AnyAnswer | None:
        """The answer to the last order; None if it has not come in this time."""
        try:
            line = self._answers.get(timeout=timeout_s)
        except Empty:
            return None
        if not line:
            code = self._process.wait()
            return Failed(
                error=f"the worker process ended with status {code}{self._last_words()}", fix="potluck doctor"
            )
        answer: AnyAnswer = msgspec.json.decode(line, type=AnyAnswer)
        return answer

    def give_up(self, waited_s: float) -> Failed:
        """Kill a process that gives no answer; its last words are the error."""
        self.kill()
        return Failed(error=f"no answer in {waited_s:.0f} s{self._last_words()}")

    def kill(self) -> None:
        """End the process at once, as a crash or a power cut would."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process and the thread that reads its answers."""
        if self._process.stdin is not None:
            with suppress(OSError):  # an order that the process did not take before it ended
                self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(_END_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def _last_words(self) -> str:
        lines = self._errors.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
        return without_home(": " + " | ".join(line.strip() for line in lines)) if lines else ""


class WorkerPool:
    """As many worker processes as the largest crew needs, and one to take the place of a killed one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[WorkerProcess] = []
        self._num_started = 0

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for process in self._processes:
                process.kill()
        for process in self._processes:
            process.close()

    def take(self, number: int) -> list[WorkerProcess]:
        """The first `number` processes; those that have ended are replaced."""
        for ended in [process for process in self._processes if not process.is_alive]:
            self._processes.remove(ended)
            ended.close()
        while len(self._processes) < number:
            self._processes.append(WorkerProcess(self._folder, self._num_started))
            self._num_started += 1
        return self._processes[:number]


def gather(processes: Sequence[WorkerProcess], timeout_s: float = ORDER_S) -> list[AnyAnswer]:
    """All answers. When one worker has failed, the others wait for it in vain, so they get only a moment more."""
    began, deadline = time.monotonic(), time.monotonic() + timeout_s
    answers: list[AnyAnswer | None] = [None] * len(processes)
    while None in answers:
        for number, process in enumerate(processes):
            if answers[number] is None:
                answers[number] = process.answer(_LOOK_S)
                if isinstance(answers[number], Failed):
                    deadline = min(deadline, time.monotonic() + _AFTER_FAILURE_S)
                elif answers[number] is None and time.monotonic() > deadline:
                    answers[number] = process.give_up(time.monotonic() - began)
    return [answer for answer in answers if answer is not None]
