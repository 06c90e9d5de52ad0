"""One row of the self-test's table: what was checked, where, and how it ended."""

from collections.abc import Sequence
from typing import Literal

import msgspec

ALL = "all"
"""Stands for the machine in rows that all joined machines fill together."""
Outcome = Literal["ok", "failed", "left out"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check in one place."""

    check: str
    where: str
    result: Outcome
    number: str = ""
    """What was measured, for people."""
    limit: str = ""
    """What is promised, for people."""
    figures: dict[str, float] = {}
    """The same, and more, for programs."""
    why: str = ""
    """What failed and by how much, or why the check was left out."""
    fix: str = ""
    """What to type next, if the check failed."""
    seconds: float = 0.0
    machine: str = ""


def verdict(rows: Sequence[Row], machines: str) -> str:
    """The outcome of all rows in one line."""
    failed = [row for row in rows if row.result == "failed"]
    done = [row for row in rows if row.result != "left out"]
    if not done:
        return f"nothing was checked on {machines}"
    if not failed:
        count = "the check is" if len(done) == 1 else f"all {len(done)} checks are"
        return f"{count} fine on {machines}"
    names = ", ".join(dict.fromkeys(row.check for row in failed))
    return f"{len(failed)} of {len(done)} checks failed on {machines}: {names}"
