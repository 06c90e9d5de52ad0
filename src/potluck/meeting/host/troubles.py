"""Errors inside a process that must go on: printed once, not every second."""

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from potluck.core.disk import as_disk_error
from potluck.core.errors import PotluckError
from potluck.core.printable import printable
from potluck.gates.file_limit import is_out_of_files, out_of_files

_AGAIN_S = 600.0
_MOST_KEPT = 1000


class Troubles:
    """Prints each error when it is new, and again after ten minutes if it still occurs."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._told_at: dict[str, float] = {}

    @contextmanager
    def survived(self, what: str) -> Iterator[None]:
        """Print an exception of the block, and go on after it; `what` names what the block was doing."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  one damaged file must not end the process that serves all machines
            self.note(what, error)

    def note(self, what: str, error: Exception) -> None:
        """Print an error, unless its line was printed in the last ten minutes."""
        text = describe(what, error)
        now = self._clock()
        if now - self._told_at.get(text, -_AGAIN_S) < _AGAIN_S:
            return
        self._told_at.pop(text, None)
        self._told_at[text] = now
        while len(self._told_at) > _MOST_KEPT:
            del self._told_at[next(iter(self._told_at))]
        self._tell(text)


def describe(what: str, error: Exception) -> str:
    """One sentence: an error with a fix, what the system says, or where in Potluck the defect is."""
    if isinstance(error, OSError) and is_out_of_files(error):
        return out_of_files()
    disk = as_disk_error(error)
    if disk is not None:
        return printable(str(disk))  # without `what`, so that one full disk gives one line
    if isinstance(error, PotluckError | OSError):
        return printable(f"{what}: {error}")
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(last[0].filename).name}, line {last[0].lineno})" if last else ""
    return printable(
        f"{what}: {type(error).__name__}: {error}{where}\n  fix: nothing: the others go on; please report this line"
    )
