"""A benchmark ends with one line if the lab cannot be made."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lab import LabError


@contextmanager
def exit_on_lab_error() -> Iterator[None]:
    """End the program with the lab's error in place of a traceback."""
    try:
        yield
    except LabError as error:
        sys.exit(f"error: {error}")
