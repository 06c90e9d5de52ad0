"""Scheduled faults: after some time, when a program prints a line, or some time after another fault."""

import threading
import time
from collections.abc import Callable, Iterator

from lab.errors import LabError, LabTimeoutError
from lab.process import Process

Action = Callable[[], object]


class Scheduled:
    """An action that a thread of its own does `wait_s` seconds after `trigger`."""

    def __init__(self, what: str, action: Action, *, wait_s: float = 0.0) -> None:
        self.what = what
        self._action = action
        self._wait_s = wait_s
        self._triggered_s = 0.0
        self._triggered = threading.Event()
        self._cancelled = threading.Event()
        self._done = threading.Event()
        self._happened_s: float | None = None
        self._error: Exception | None = None
        self._followers: list[Scheduled] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"lab schedule: {what}", daemon=True)
        self._thread.start()

    def then(self, wait_s: float, action: Action) -> "Scheduled":
        """Schedule another action, `wait_s` seconds after this one is done."""
        follower = Scheduled(f"{_name(action)} {wait_s:g} s after {self.what}", action, wait_s=wait_s)
        with self._lock:
            self._followers.append(follower)
            if self._happened_s is not None:
                follower.trigger(self._happened_s)
        return follower

    def wait(self, timeout_s: float) -> float:
        """Wait until the action is done, and return when that was, on the clock of time.monotonic()."""
        if not self._done.wait(timeout_s):
            raise LabTimeoutError(f"{self.what} did not happen in {timeout_s:g} s", fix="wait longer")
        self.check()
        assert self._happened_s is not None
        return self._happened_s

    def check(self) -> None:
        """Raise unless the action was done without error: a fault test whose fault never came proves nothing."""
        if self._error is not None:
            raise self._error
        if self._happened_s is None:
            raise LabError(
                f"{self.what} never happened",
                fix="keep the lab up until then, or cancel() it if it is not wanted any more",
            )

    def trigger(self, moment_s: float | None = None) -> None:
        """Start counting `wait_s`, from now or from `moment_s`."""
        self._triggered_s = time.monotonic() if moment_s is None else moment_s
        self._triggered.set()

    def cancel(self) -> None:
        """Cancel the action if it has not begun; wait for its end if it has."""
        self._cancelled.set()
        self._triggered.set()
        self._thread.join()

    def family(self) -> Iterator["Scheduled"]:
        """This action, and all actions scheduled after it with `then`."""
        yield self
        for follower in self._followers:
            yield from follower.family()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def _run(self) -> None:
        self._triggered.wait()
        due_s = self._triggered_s + self._wait_s
        if not self._cancelled.wait(max(0.0, due_s - time.monotonic())):
            try:
                self._action()
            except Exception as error:  # noqa: BLE001 (raised by wait, and at the end of the lab)
                self._error = error
            else:
                with self._lock:
                    self._happened_s = time.monotonic()
                    for follower in self._followers:
                        follower.trigger(self._happened_s)
        self._done.set()


def after(wait_s: float, action: Action) -> Scheduled:
    """Do an action `wait_s` seconds from now."""
    scheduled = Scheduled(f"{_name(action)} after {wait_s:g} s", action, wait_s=wait_s)
    scheduled.trigger()
    return scheduled


def when_printed(process: Process, text: str, action: Action) -> Scheduled:
    """Do an action when a line of the process's output, already there or yet to come, contains `text`."""
    scheduled = Scheduled(f"{_name(action)} when {process.machine} prints {text!r}", action)
    process.watch(text, scheduled.trigger)
    return scheduled


def _name(action: Action) -> str:
    name = str(getattr(action, "__name__", action))
    owner = getattr(getattr(action, "__self__", None), "name", None)
    return f"{name} {owner}" if owner else name
