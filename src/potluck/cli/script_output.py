"""What a script prints on several machines: lines of `run.print` once, all other lines with the machine's name."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any


class ScriptOutput:
    """Shows lines of `run.print` and of plain `print` together.

    Every worker writes a LinePrinted event for a line of run.print; the first event is shown, in order with other
    events. The same line in the log of the worker that printed it is then left out.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._once: Counter[str] = Counter()
        self._left_out: Counter[tuple[str, str]] = Counter()

    def show_once(self, text: str) -> None:
        """Show a line of run.print."""
        for line in text.splitlines() or [""]:
            self._once[line] += 1
            self._say(line)

    def show_log(self, file: str, text: str, run: dict[str, Any]) -> None:
        """Show new lines of a worker's log, without lines of run.print that were shown."""
        worker = Path(file).name.split(".")[0]
        for line in text.splitlines():
            if self._left_out[worker, line] < self._once[line]:
                self._left_out[worker, line] += 1
            else:
                self._say(f"{label_of(worker, run)}: {line}")


def label_of(worker: str, run: dict[str, Any]) -> str:
    """The machine's name, with the device if the machine has several workers, as in the display's first line."""
    machine, _, number = worker.rpartition("-")
    workers = run["workers"].get(machine, [])
    device = next((one.get("card") or one["device"] for one in workers if str(one["number"]) == number), "")
    return f"{machine} ({device})" if len(workers) > 1 else machine
