"""Plain lines on the terminal: text from elsewhere in them cannot command the terminal."""

import sys

from potluck.core.printable import printable


def say(text: str) -> None:
    """One line, or some, at once: also where the output goes into a file."""
    print(printable(text), flush=True)


def warn(text: str) -> None:
    """The same on stderr, where it is no part of the result."""
    print(printable(text), file=sys.stderr, flush=True)
