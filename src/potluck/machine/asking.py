"""Asking another program, with an end to the waiting."""

import subprocess
from collections.abc import Sequence


class NoAnswerError(Exception):
    """The program is not there, failed, or took too long."""


def ask(command: Sequence[str], *, timeout_s: float = 2.0) -> str:
    """What the program printed; NoAnswerError in one sentence otherwise."""
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
    """Text of a program; those of Windows may answer in UTF-16."""
    if b"\0" in raw:
        return raw.decode("utf-16-le", errors="replace").lstrip("\ufeff")
    return raw.decode(errors="replace")
