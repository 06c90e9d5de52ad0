"""Filter for repeated lines: a line passes when it is new, and again only after it was absent in between."""

from collections.abc import Sequence


class NewLines:
    """Remembers the lines of the previous call."""

    def __init__(self) -> None:
        self._told: Sequence[str] = ()

    def of(self, lines: Sequence[str]) -> list[str]:
        """The lines that were not in the previous call."""
        told, self._told = self._told, lines
        return [line for line in lines if line not in told]
