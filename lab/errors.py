"""Errors of the lab: what happened, and what to type next.

LabError
├── ClusterFileError   a cluster file that cannot be read as written
├── RequirementError   this computer cannot run a lab
└── LabTimeoutError    something on a machine did not happen in time
"""

from collections.abc import Iterable
from difflib import get_close_matches


class LabError(Exception):
    """An error that the user can fix."""

    def __init__(self, message: str, *, fix: str) -> None:
        super().__init__(message)
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.args[0]}\n  fix: {self.fix}"


class ClusterFileError(LabError):
    """A cluster file that cannot be read as written."""


class RequirementError(LabError):
    """This computer cannot run a lab."""


class LabTimeoutError(LabError):
    """Something on a machine did not happen in time."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A fix for a mistyped name: the closest known name first, then all known names."""
    choices = sorted(known)
    close = get_close_matches(word, choices, n=1, cutoff=0.6)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return f"{guess}choose one of: {', '.join(choices)}"
