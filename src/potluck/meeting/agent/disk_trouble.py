"""A disk that cannot be written keeps a machine from its part in the succession, and from nothing else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from potluck.core.disk import as_disk_error


class DiskTrouble:
    """Says once what cannot be written, and lets the agent go on; again when it has worked in between."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told: dict[str, str] = {}

    @contextmanager
    def survived(self, what: str) -> Iterator[None]:
        """Print an OSError of the block, and go on after it; `what` does not work because of it."""
        try:
            yield
        except OSError as error:
            text = f"{what}: {as_disk_error(error) or error}"
            if self._told.get(what) != text:
                self._told[what] = text
                self._tell(text)
        else:
            self._told.pop(what, None)
