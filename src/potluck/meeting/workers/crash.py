"""Runs in the fork server: why a worker crashed, from its exit code, its stderr and its recorded traceback."""

import re
import signal
from pathlib import Path

from potluck.meeting.workers.own_frames import own_frames

_TAIL_BYTES = 64 * 1024
_TAIL_LINES = 15
_HEADER = "Traceback (most recent call last):"
_CHAINED = re.compile(
    r"\n\n(?:During handling of the above exception, another exception occurred|"
    r"The above exception was the direct cause of the following exception):\n\n\Z"
)


def crash_text(exit_code: int, stderr: str, recorded: str, folder: Path) -> str:
    """The exception with the frames of the script that lies in `folder`, or the reason and the last lines printed."""
    reason, traceback = last_words(exit_code, stderr, recorded)
    text = own_frames(traceback, folder)
    return text if text.endswith(reason) else f"{reason}\n{text}".rstrip()


def last_words(exit_code: int, stderr: str, recorded: str = "") -> tuple[str, str]:
    """The reason and the traceback, from the recorded traceback if there is one, else from stderr."""
    traceback = recorded.strip() or last_traceback(stderr)
    ending = _ending(exit_code)
    if exit_code < 0:  # ended by a signal: a traceback in stderr is of an exception that the worker survived
        return ending, _last_lines(stderr)
    if not traceback:
        lines = _last_lines(stderr)
        error = next((line for line in reversed(lines.splitlines()) if line and not line[0].isspace()), "")
        return (f"{error} ({ending})" if error else ending), lines
    return _exception_line(traceback), traceback


def last_traceback(text: str) -> str:
    """The last traceback in the text with the exceptions chained to it; empty if there is none."""
    start = text.rfind(f"\n{_HEADER}") + 1
    if start == 0 and not text.startswith(_HEADER):
        return ""
    while chained := _CHAINED.search(text[:start]):
        before = text[: chained.start()]
        start = before.rfind(f"\n{_HEADER}") + 1
        if start == 0 and not text.startswith(_HEADER):
            return text[chained.end() :].strip()  # the beginning of the chained traceback is cut off
    return text[start:].strip()


def kind_of_crash(text: str) -> str:
    """A key for crashes of one cause: the text without its numbers, which depend on a machine's share."""
    return re.sub(r"\d+", "#", text)


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
