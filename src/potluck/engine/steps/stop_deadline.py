"""A worker that is asked to stop and does not end its step in time abandons that step.

A step may wait for another machine that does not answer, or simply take long. The state of the last committed step is
complete at any moment between the beginning of a step and its commit, so that state is saved and the process ends.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from potluck.engine.steps.stopping import SIGNALS

_LIMIT_S = 6.0
_LOOK_S = 0.1


class StopDeadline:
    """Calls `end` with the signal's number if the step is still open `limit_s` after a stop signal.

    `end` runs on a thread of its own and must end the process. The main thread may be blocked where no Python signal
    handler runs, so the deadline's thread reads signals from the wakeup file descriptor.
    """

    def __init__(self, end: Callable[[int], None], limit_s: float = _LIMIT_S) -> None:
        self._end = end
        self._limit_s = limit_s
        self._may_abandon = False
        self._lock = threading.RLock()
        self._is_over = threading.Event()

    def allow(self) -> None:
        """Allow to abandon the open step: parameters, optimizer and schedule are those of the last committed one."""
        self._may_abandon = True

    def forbid(self) -> None:
        """Forbid to abandon the step: it is committed and will change the parameters. Blocks while `end` runs."""
        with self._lock:
            self._may_abandon = False

    @contextmanager
    def changing_state(self) -> Iterator[None]:
        """Inside, the training state changes, and `end` does not run."""
        with self._lock:
            yield

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, watch for stop signals; only on the main thread, and unless the script has a wakeup descriptor."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._is_over.clear()  # a script may train in several loops
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
        thread = threading.Thread(target=self._watch, args=(reading,), name="potluck-stop", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            if before == -1:
                signal.set_wakeup_fd(-1)
            os.close(writing)
            thread.join()
            os.close(reading)

    def _watch(self, reading: int) -> None:
        while number := os.read(reading, 1):
            if number[0] in SIGNALS:
                self._wait_and_end(number[0])
                return

    def _wait_and_end(self, number: int) -> None:
        deadline = time.monotonic() + self._limit_s
        while not self._is_over.wait(_LOOK_S):
            if time.monotonic() < deadline:
                continue
            with self._lock:
                if self._may_abandon and not self._is_over.is_set():
                    with suppress(Exception):  # the process ends even if the state cannot be saved
                        self._end(number)
                    os._exit(128 + number)
