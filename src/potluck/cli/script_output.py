"""What a script prints on several machines: lines for all of them once, others with the machine's name."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any


class ScriptOutput:
    """Puts `run.print` and plain `print` together.

    Every worker tells of a line of run.print in its events, and the first to do so is shown, in its place between
    epochs. The same line in the log of the worker that printed it is then left out.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._once: Counter[str] = Counter()
        self._left_out: Counter[tuple[str, str]] = Counter()

    def show_once(self, text: str) -> None:
        """A line of run.print."""
        for line in text.splitlines() or [""]:
            self._once[line] += 1
            self._say(line)

    def show_log(self, file: str, text: str, run: dict[str, Any]) -> None:
        """New lines of a worker's log."""
        worker = Path(file).name.split(".")[0]
        for line in text.splitlines():
            if self._left_out[worker, line] < self._once[line]:
                self._left_out[worker, line] += 1
            else:
                self._say(f"{_label(worker, run)}: {line}")


def _label(worker: str, run: dict[str, Any]) -> str:
    """The machine, and the device where the machine has several workers: the words of the display's first line."""
    machine, _, number = worker.rpartition("-")
    workers = run["workers"].get(machine, [])
    device = next((one["device"] for one in workers if str(one["number"]) == number), "")
    return f"{machine} ({device})" if len(workers) > 1 else machine
