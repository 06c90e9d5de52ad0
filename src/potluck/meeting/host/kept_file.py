"""Why a host cannot read a file of its own: damaged, or written by another version of Potluck."""

from pathlib import Path

from pydantic import ValidationError

_OTHER_VERSION = {"missing", "extra_forbidden"}


def why_unreadable(path: Path, error: ValidationError | OSError) -> str:
    """The reason in one clause. A file that only lacks fields, or also has unknown ones, is an earlier version's."""
    if isinstance(error, OSError):
        return f"{path} is damaged"
    kinds = {problem["type"] for problem in error.errors(include_url=False, include_input=False)}
    if "missing" in kinds and kinds <= _OTHER_VERSION:
        return f"{path} was written by an earlier version of Potluck, which kept less than this one needs"
    return f"{path} is damaged"
