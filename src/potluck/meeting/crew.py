"""The process that holds a machine's workers: it imports torch once, and every worker starts from there at once.

    python -m potluck.meeting.crew

Orders come as JSON lines on stdin, news goes out as JSON lines on stdout. When stdin ends, whoever gave the orders is
gone: the workers stop after their step.
"""

import gc
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from potluck.core.environment import quieten_torchft

MOST_RESTARTS = 3
_FIRST_PAUSE_S = 1.0
_POLL_S = 0.05
_GENTLE_S = 60.0
_LAST_LINES = 30


class CrewWorker:
    """One worker under torch's supervision: started again a few times when it crashes."""

    def __init__(self, order: dict[str, Any], errors: Path) -> None:
        self.order = order
        self.restarts = 0
        self.state = ""
        self.message = ""
        self._errors = errors
        self._context: Any = None
        self._stopping_since: float | None = None
        self._start_again_at: float | None = None
        self._start()

    def _start(self) -> None:
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, start_processes  # noqa: PLC0415

        from potluck.meeting.working import work  # noqa: PLC0415

        folder = self._errors / f"{self.order['run']}-{self.order['worker']}-{self.restarts}"
        folder.mkdir(exist_ok=True)
        arguments = (self.order["task"], self.order["folder"], self.order["output"])
        self._context = start_processes(
            name="worker",
            entrypoint=work,
            args={0: arguments},
            envs={0: self.order["environment"]},
            logs_specs=DefaultLogsSpecs(log_dir=str(folder)),
            start_method="fork",
        )
        self._start_again_at = None
        self._tell("running")

    def poll(self) -> None:
        """Look once; tell when something has changed."""
        now = time.monotonic()
        if self._start_again_at is not None and now >= self._start_again_at:
            self._start()
        if self._context is None:
            return
        self._insist(now)
        result = self._context.wait(0)
        if result is None:
            return
        self._context = None
        if not result.is_failed():
            self._tell(**result.return_values[0])
        elif self._stopping_since is not None:
            self._tell("stopped")
        elif self.restarts < MOST_RESTARTS:
            self.restarts += 1
            self._start_again_at = now + _FIRST_PAUSE_S * 2 ** (self.restarts - 1)
            self._tell("running", self._why(result))
        else:
            self._tell("failed", self._why(result))

    def stop(self) -> None:
        """Ask it to end after its step."""
        self._start_again_at = None
        if self._context is None:
            if self.state == "running":
                self._tell("stopped")
        elif self._stopping_since is None:
            self._signal(signal.SIGINT)
            self._stopping_since = time.monotonic()

    def end_now(self) -> None:
        """End it, whatever it is doing, because another takes its place."""
        self._start_again_at = None
        if self._context is not None:
            self._context.close(signal.SIGKILL)
            self._context = None

    @property
    def has_ended(self) -> bool:
        return self._context is None and self._start_again_at is None

    def _insist(self, now: float) -> None:
        if self._stopping_since is not None and now - self._stopping_since > _GENTLE_S:
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._context.pids().values():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _why(self, result: Any) -> str:
        failure = next(iter(result.failures.values()))
        traceback = getattr(failure, "error_file_data", None)
        text = ""
        if isinstance(traceback, dict):
            details = traceback.get("message", {})
            text = str(details.get("extraInfo", {}).get("py_callstack", "") if isinstance(details, dict) else details)
        if text:
            return text.strip()
        name = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
        return f"it ended with {name}; its last lines are in {self.order['output']}"

    def _tell(self, state: str, message: str = "") -> None:
        self.state, self.message = state, message
        _say(run=self.order["run"], worker=self.order["worker"], state=state, message=message, restarts=self.restarts)


def main() -> None:
    """Warm up, then take orders until stdin ends."""
    _warm_up()
    _say(ready=True)
    workers: dict[tuple[str, int], CrewWorker] = {}
    with TemporaryDirectory(prefix="potluck-crew-") as errors:
        buffer, is_open = b"", True
        while is_open or any(not worker.has_ended for worker in workers.values()):
            if is_open and select.select([0], [], [], _POLL_S)[0]:
                received = os.read(0, 1 << 16)
                *lines, buffer = (buffer + received).split(b"\n")
                for line in lines:
                    _obey(json.loads(line), workers, Path(errors))
                if not received:
                    is_open = False
                    for worker in workers.values():
                        worker.stop()
            elif not is_open:
                time.sleep(_POLL_S)
            for worker in workers.values():
                worker.poll()


def _obey(order: dict[str, Any], workers: dict[tuple[str, int], CrewWorker], errors: Path) -> None:
    if "start" in order:
        start = order["start"]
        key = (start["run"], start["worker"])
        if key in workers:
            workers[key].end_now()
        workers[key] = CrewWorker(start, errors)
    for (run, _), worker in workers.items():
        if order.get("stop") == run:
            worker.stop()


def _warm_up() -> None:
    """Everything that a worker imports; none of it starts a thread or touches a GPU, so that forking is safe."""
    quieten_torchft()
    import torch._dynamo  # noqa: PLC0415  an optimizer imports it when it is made

    import potluck.engine.launch  # noqa: PLC0415
    import potluck.engine.start  # noqa: PLC0415
    import potluck.meeting.working  # noqa: PLC0415
    import potluck.workloads.trainer  # noqa: F401, PLC0415

    _ = torch
    gc.collect()
    gc.freeze()  # pages that workers share stay shared


def _say(**news: Any) -> None:
    with suppress(BrokenPipeError):  # nobody listens any more; stdin will tell
        sys.stdout.write(json.dumps(news) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
