"""One known error text: the pattern that recognises it, its cause, and its fix."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownError:
    """The pattern of an error text, the text's cause, and what to type as a fix."""

    id: str
    pattern: re.Pattern[str]
    cause: str
    fix: str


def known(error_id: str, pattern: str, cause: str, fix: str) -> KnownError:
    """A KnownError whose pattern is searched for in each line, ignoring case."""
    return KnownError(error_id, re.compile(pattern, re.IGNORECASE), cause, fix)
