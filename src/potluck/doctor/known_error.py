"""One known error text: how to recognise it, what it means, what to type."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownError:
    """A text, what it means, and what to type."""

    id: str
    pattern: re.Pattern[str]
    cause: str
    fix: str


def known(error_id: str, pattern: str, cause: str, fix: str) -> KnownError:
    """A known error whose pattern is looked for in each line, whatever its case."""
    return KnownError(error_id, re.compile(pattern, re.IGNORECASE), cause, fix)
