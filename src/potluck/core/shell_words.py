"""Paths and names in commands that people are told to paste into a shell."""

import shlex
from pathlib import Path


def quote(word: Path | str) -> str:
    """One word of a shell, whatever stands in it."""
    return shlex.quote(str(word))
