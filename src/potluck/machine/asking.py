"""Runs another program with a timeout and returns its output."""

import subprocess
from collections.abc import Sequence


class NoAnswerError(Exception):
    """The program is not there, failed, or took too long."""


def ask(command: Sequence[str], *, timeout_s: float = 2.0) -> str:
    """The program's stdout; NoAnswerError with a one-sentence reason if it is missing, fails or takes too long."""
    try:
        done = subprocess.run(  # noqa: S603
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError:
        raise NoAnswerError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"{command[0]} gave no answer in {timeout_s:g} s") from None
    except OSError as error:
        raise NoAnswerError(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"status {done.returncode}"
        raise NoAnswerError(f"{command[0]}: {reason}")
    return decode(done.stdout)


def decode(raw: bytes) -> str:
    """A program's output as text; Windows programs may write UTF-16."""
    if b"\0" in raw:
        return raw.decode("utf-16-le", errors="replace").lstrip("\ufeff")
    return raw.decode(errors="replace")
