"""What is told of a worker that crashed: where, and the traceback that it left."""

import re
import signal
from dataclasses import dataclass
from pathlib import Path

_TAIL_BYTES = 64 * 1024
_TAIL_LINES = 15
_HEADER = "Traceback (most recent call last):"
_CHAINED = re.compile(
    r"\n\n(?:During handling of the above exception, another exception occurred|"
    r"The above exception was the direct cause of the following exception):\n\n\Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The end of a worker that nobody asked for."""

    machine: str
    worker: str
    """Its name in the run's files: <machine>-<n>."""

    time: float
    """Seconds since 1970 on that machine, when it wrote its traceback; of one that left none, when it was seen."""

    exit_code: int
    """Below zero: the signal that ended it."""

    reason: str
    """One line: the exception, or the signal. The doctor knows what it may mean."""

    traceback: str
    """The whole traceback, or the last lines of stderr where there is none."""

    restarts_left: int
    """0: it is not started again."""

    log_file: Path


def last_words(exit_code: int, stderr: str, recorded: str = "") -> tuple[str, str]:
    """The reason and the traceback, from a traceback that was recorded, else from what stands in stderr."""
    traceback = recorded.strip() or last_traceback(stderr)
    ending = _ending(exit_code)
    if exit_code < 0:  # a traceback in the log is of something that it survived
        return ending, _last_lines(stderr)
    if not traceback:
        lines = _last_lines(stderr)
        error = next((line for line in reversed(lines.splitlines()) if line and not line[0].isspace()), "")
        return (f"{error} ({ending})" if error else ending), lines
    return _exception_line(traceback), traceback


def last_traceback(text: str) -> str:
    """The last traceback in the text, with those that led to it; empty if there is none."""
    start = text.rfind(f"\n{_HEADER}") + 1
    if start == 0 and not text.startswith(_HEADER):
        return ""
    while chained := _CHAINED.search(text[:start]):
        before = text[: chained.start()]
        start = before.rfind(f"\n{_HEADER}") + 1
        if start == 0 and not text.startswith(_HEADER):
            return text[chained.end() :].strip()  # its beginning is cut off
    return text[start:].strip()


def read_tail(file: Path) -> str:
    """The end of a log file, as text."""
    try:
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - _TAIL_BYTES))
            return log.read().decode(errors="replace")
    except OSError:
        return ""


def _exception_line(traceback: str) -> str:
    """`ValueError: no`: the first line after the last frame."""
    lines = traceback[traceback.rfind(_HEADER) :].splitlines()[1:]
    return next((line for line in lines if line and not line[0].isspace()), _HEADER)


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with code {exit_code}"
    try:
        return f"ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"ended by signal {-exit_code}"


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_TAIL_LINES:])
