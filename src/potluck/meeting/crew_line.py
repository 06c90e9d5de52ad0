"""The line to the crew process: orders out, news in."""

import json
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any, NamedTuple

STEP_S = 60.0  # for a worker's step and its checkpoint
_END_S = 15.0


class WorkerNews(NamedTuple):
    """Something has happened to a worker."""

    run: str
    worker: int
    state: str
    message: str
    restarts: int


class CrewLine:
    """Starts the crew in a session of its own: a Ctrl-C in this terminal is for the agent, which asks them to stop."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._news: queue.SimpleQueue[WorkerNews] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="potluck-crew", daemon=True)
        self.is_ready = threading.Event()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "potluck.meeting.crew"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._reader.start()

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, **order: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def news(self) -> list[WorkerNews]:
        """What has come since the last call."""
        found = []
        while not self._news.empty():
            found.append(self._news.get())
        return found

    def close(self, patience_s: float = STEP_S) -> None:
        """End the crew; its workers stop after their step, if that does not take longer."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already
            self.send(patience_s=patience_s)
            self._process.stdin.close()
        try:
            self._process.wait(patience_s + _END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                news = json.loads(line)
                if "ready" in news:
                    self.is_ready.set()
                else:
                    self._news.put(WorkerNews(**news))
