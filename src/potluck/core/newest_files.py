"""Folders that keep their newest files only."""

from collections.abc import Iterable
from pathlib import Path


def keep_newest(files: Iterable[Path], number: int) -> None:
    """Delete all but the `number` files that were written or used last."""
    by_use = sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)
    for old in by_use[number:]:
        old.unlink(missing_ok=True)
