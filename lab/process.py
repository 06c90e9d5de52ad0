"""A program that runs on a machine: its output, line by line as it comes, and its exit status."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lab.errors import LabError, LabTimeoutError

LAST_LINES = 20  # how much of the output an error shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A program that has ended: its exit status and everything it printed."""

    returncode: int
    output: str


class Process:
    """A program on a machine. Standard output and error come as one stream of lines."""

    def __init__(self, machine: str, command: Sequence[str], popen: subprocess.Popen[bytes]) -> None:
        self.machine = machine
        self.command = tuple(command)
        self._popen = popen
        self._lines: list[str] = []
        self._num_passed = 0  # lines that expect() has looked at
        self._watched: list[tuple[str, Callable[[], None]]] = []
        self._ended = False
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, name=f"lab output of {machine}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id as seen from outside the machine."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, -N if signal N ended the program, None while it runs."""
        return self._popen.poll()

    @property
    def output(self) -> str:
        """Everything printed so far."""
        with self._news:
            return "\n".join(self._lines)

    def lines(self, timeout_s: float | None = None) -> Iterator[str]:
        """Yield every line from the first, as they come, until the output ends; `timeout_s` bounds each wait."""
        position = 0
        while True:
            self._wait_for(partial(self._has_more_than, position), timeout_s, "further line")
            with self._news:
                fresh = self._lines[position:]
            if not fresh:
                return
            position += len(fresh)
            yield from fresh

    def expect(self, text: str, timeout_s: float) -> str:
        """Wait for the next line that contains `text` and return it; the next call starts after that line."""

        def found() -> bool:
            while self._num_passed < len(self._lines):
                self._num_passed += 1
                if text in self._lines[self._num_passed - 1]:
                    return True
            return False

        if not self._wait_for(found, timeout_s, f"line with {text!r}"):
            raise LabError(
                f"{self._title()} ended with status {self.wait(timeout_s)} and did not print {text!r}; {self._tail()}",
                fix="mend the program, or expect another text",
            )
        return self._lines[self._num_passed - 1]

    def watch(self, text: str, found: Callable[[], None]) -> None:
        """Call `found` once, from the reading thread, when a line contains `text`; at once if an earlier line does."""
        with self._news:
            if any(text in line for line in self._lines):
                found()
            else:
                self._watched.append((text, found))

    def wait(self, timeout_s: float) -> int:
        """Wait for the program's end and return its exit status."""
        try:
            returncode = self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise LabTimeoutError(
                f"{self._title()} still runs after {timeout_s:g} s; {self._tail()}", fix="wait longer, or kill it"
            ) from None
        # A child of the program may hold the output open for long; what the program itself printed has arrived by then.
        self._reader.join(1.0)
        return returncode

    def send_signal(self, number: signal.Signals, *, whole_group: bool = True) -> None:
        """Send a signal to the program's process group, as a terminal does with Ctrl-C, or to the program alone."""
        if self._popen.poll() is None:
            (os.killpg if whole_group else os.kill)(self.pid, number)

    def kill(self) -> None:
        """SIGKILL the program's process group."""
        self.send_signal(signal.SIGKILL)

    def close(self, timeout_s: float) -> None:
        """Collect the exit status and the rest of the output, after the machine is gone."""
        self._popen.wait(timeout_s)
        self._reader.join(timeout_s)

    def _read(self) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as stream:
            for raw in stream:
                with self._news:
                    self._lines.append(raw.decode(errors="replace").rstrip("\r\n"))
                    self._notify_watchers(self._lines[-1])
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _notify_watchers(self, line: str) -> None:
        for text, found in [watched for watched in self._watched if watched[0] in line]:
            self._watched.remove((text, found))
            found()

    def _has_more_than(self, num_lines: int) -> bool:
        return len(self._lines) > num_lines

    def _wait_for(self, happened: Callable[[], bool], timeout_s: float | None, what: str) -> bool:
        """Wait until `happened()`; False if the output ends first, LabTimeoutError if neither comes in time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._news:
            while not happened():
                if self._ended:
                    return False
                remaining_s = None if deadline is None else deadline - time.monotonic()
                if remaining_s is not None and remaining_s <= 0:
                    raise LabTimeoutError(
                        f"{self._title()} printed no {what} in {timeout_s:g} s; {self._tail()}",
                        fix="wait longer, or look at why it is stuck",
                    )
                self._news.wait(remaining_s)
        return True

    def _title(self) -> str:
        return f"{' '.join(self.command)[:80]} on {self.machine}"

    def _tail(self) -> str:
        last = self._lines[-LAST_LINES:]
        return "it printed nothing" if not last else "its last lines:\n" + "\n".join(f"    {line}" for line in last)
