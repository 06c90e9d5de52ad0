"""Quotes paths and names in commands that Potluck prints for users to paste into a shell."""

import shlex
from pathlib import Path


def quote(word: Path | str) -> str:
    """The path or name as a single shell word, quoted if needed."""
    return shlex.quote(str(word))
