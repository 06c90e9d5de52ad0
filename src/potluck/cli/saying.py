"""Prints plain lines with control characters escaped: text from other machines cannot control the terminal."""

import sys

from potluck.core.printable import printable


def say(text: str) -> None:
    """Print one or more lines and flush at once, also when the output goes into a file."""
    print(printable(text), flush=True)


def warn(text: str) -> None:
    """Print lines to stderr, apart from the command's result."""
    print(printable(text), file=sys.stderr, flush=True)
