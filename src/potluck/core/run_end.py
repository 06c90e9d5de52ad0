"""How a plain run ended, as its host saw it: end.json in the run's folder.

The workers of a plain run cannot tell by themselves: those of a lost machine write nothing more, and the others are
stopped by the host.
"""

import json
from dataclasses import asdict, dataclass

from potluck.core.atomic import write_text
from potluck.core.plain_file import read_plain
from potluck.core.printable import printable
from potluck.core.run_folder import RunFolder
from potluck.core.states import ENDED

_MOST_BYTES = 1 << 20
_TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The state in which a run ended, and the host's message about it."""

    state: str
    """finished, stopped or failed."""
    message: str

    @property
    def cause(self) -> str:
        """The message; of a traceback only the last line, with its machine, since the run's logs have all of it."""
        text = self.message.partition("\n  fix: ")[0]
        where, traceback, _ = text.partition(_TRACEBACK)
        return f"{where}{text.splitlines()[-1]}" if traceback else self.message


def write_end(folder: RunFolder, end: RunEnd) -> None:
    """Write how the run ended, unless it is written already or the folder is gone."""
    if folder.path.is_dir() and read_end(folder) != end:
        write_text(folder.end_file, f"{json.dumps(asdict(end))}\n")


def read_end(folder: RunFolder) -> RunEnd | None:
    """How the run ended; None if its host has not written it, or the file is damaged."""
    try:
        found = json.loads(read_plain(folder.end_file, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    match found:
        case {"state": str(state), "message": str(message)} if state in ENDED:
            return RunEnd(state, printable(message))
    return None
