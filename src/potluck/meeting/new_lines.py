"""Lines that stay true for a while: told when they are new, and told again only after they were gone."""

from collections.abc import Sequence


class NewLines:
    """What a terminal has told of the lines that hold now."""

    def __init__(self) -> None:
        self._told: Sequence[str] = ()

    def of(self, lines: Sequence[str]) -> list[str]:
        """Those that were not there the last time."""
        told, self._told = self._told, lines
        return [line for line in lines if line not in told]
