"""What this worker tells: events into its file, one line to people, a summary for other tools."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

from potluck.core.atomic import write_text
from potluck.events.log import EventLog, read_records
from potluck.events.state import RunState, apply, replay
from potluck.events.summary import summarise
from potluck.events.types import AnyEvent, Notice, Record, RunEnded

Watcher: TypeAlias = Callable[[Record, RunState], None]


class Journal:
    """The event log of one worker, the state it adds up to, and whoever watches."""

    def __init__(self, log: EventLog, metrics_file: Path, watchers: list[Watcher]) -> None:
        self._log = log
        self._metrics_file = metrics_file
        self._watchers = watchers
        self.state = replay(read_records(log.path))  # a resumed run goes on in the same file

    def emit(self, event: AnyEvent) -> None:
        record = self._log.append(event)
        self.state = apply(self.state, record)
        for watcher in self._watchers:
            watcher(record, self.state)

    def say(self, text: str) -> None:
        """Tell the person at this machine one line, and keep it."""
        self.emit(Notice(text=text))
        if not self._watchers:
            sys.stderr.write(f"potluck: {text}\n")

    def save_summary(self) -> None:
        """Write logs/rank_<n>_metrics.json and make the events durable."""
        self._log.sync()
        write_text(self._metrics_file, json.dumps(summarise(self.state), indent=2, allow_nan=False) + "\n")

    def end(self, reason: Literal["finished", "stopped", "failed"], message: str, step: int) -> None:
        """The last event, and the summary of all."""
        self.emit(RunEnded(reason=reason, step=step, message=message))
        self.save_summary()

    def close(self) -> None:
        self._log.close()
