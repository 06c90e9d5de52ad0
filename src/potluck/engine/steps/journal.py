"""A worker's output: its event file, lines on stderr, and a summary for other tools."""

import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from potluck.core.atomic import write_text
from potluck.core.disk import is_full
from potluck.core.printable import printable
from potluck.core.shell_words import quote
from potluck.core.states import Ending
from potluck.events.log import EventLog, read_records
from potluck.events.progress_lines import group_lines
from potluck.events.state import RunState, apply, replay
from potluck.events.summary import summarise
from potluck.events.types import AnyEvent, GpuUse, GroupChanged, MachineUsed, Notice, Record, RunEnded, StepCommitted
from potluck.machine.usage import Usage, UsageMeter

Watcher: TypeAlias = Callable[[Record, RunState], None]


class Journal:
    """One worker's event log, the RunState that its events add up to, and the watchers of its events."""

    def __init__(
        self, log: EventLog, metrics_file: Path, watchers: list[Watcher], meter: UsageMeter | None = None
    ) -> None:
        self._log = log
        self._metrics_file = metrics_file
        self._watchers = watchers
        self._meter = meter or UsageMeter()
        self._has_told_full_disk = False
        self._lock = threading.RLock()  # threads that watch the training loop emit events too
        self.state = replay(read_records(log.path))  # a resumed run continues the same file

    def emit(self, event: AnyEvent) -> None:
        with self._lock:
            self._take_in(self._log.append(event))
            if not self._watchers:
                _print_lines(event)
            self._tell_full_disk()
        if isinstance(event, StepCommitted) and (usage := self._meter.look()) is not None:
            self.emit(usage_event(usage))

    def show(self, event: AnyEvent) -> None:
        """Take in an event that other workers write: this worker's state and watchers have it, its file does not."""
        with self._lock:
            self._take_in(Record(sequence=0, time=time.time(), event=event))

    def _take_in(self, record: Record) -> None:
        self.state = apply(self.state, record)
        for watcher in self._watchers:
            watcher(record, self.state)

    def say(self, text: str) -> None:
        """Write a Notice event; watchers, or this class without watchers, print its line."""
        self.emit(Notice(text=text))

    def _tell_full_disk(self) -> None:
        if self._log.is_waiting and not self._has_told_full_disk:
            self._has_told_full_disk = True
            self.say(
                f"the disk that holds {self._log.path.parent} is full: training goes on, and what it tells is kept "
                f"in memory until there is space; see with: df -h {quote(self._log.path.parent)}"
            )
        elif self._has_told_full_disk and not self._log.is_waiting:
            self._has_told_full_disk = False
            self.say(f"the disk that holds {self._log.path.parent} has space again, and nothing was lost")

    def save_summary(self) -> None:
        """Write logs/rank_<n>_metrics.json and make the events durable, if the disk is not full just now."""
        self._log.sync()
        try:
            write_text(self._metrics_file, json.dumps(summarise(self.state), indent=2, allow_nan=False) + "\n")
        except OSError as error:
            if not is_full(error):
                raise

    def end(self, reason: Ending, message: str, step: int) -> None:
        """Write the last event and the summary."""
        self.emit(RunEnded(reason=reason, step=step, message=message))
        self._log.finish()
        self.save_summary()

    def close(self) -> None:
        self._log.close()


def _print_lines(event: AnyEvent) -> None:
    """Print notices and changes of the group on stderr, for a run without watchers."""
    lines = group_lines(event) if isinstance(event, GroupChanged) else []
    for line in [event.text] if isinstance(event, Notice) else lines:
        with suppress(OSError):  # stderr may be a log file on a full disk
            sys.stderr.write(f"potluck: {printable(line)}\n")


def usage_event(usage: Usage) -> MachineUsed:
    """A measurement of this machine as the event that workers write."""
    return MachineUsed(
        seconds=usage.seconds,
        cpu=usage.cpu,
        cpu_power_w=usage.cpu_power_w,
        memory_bytes=usage.memory_bytes,
        memory_total_bytes=usage.memory_total_bytes,
        sent_bytes_per_s=usage.sent_bytes_per_s,
        received_bytes_per_s=usage.received_bytes_per_s,
        address=usage.address,
        sending_bytes_per_s=usage.sending_bytes_per_s,
        gpus=[
            GpuUse(
                name=gpu.name,
                id=gpu.id,
                busy=gpu.busy,
                memory_bytes=gpu.memory_bytes,
                memory_total_bytes=gpu.memory_total_bytes,
                power_w=gpu.power_w,
            )
            for gpu in usage.gpus
        ],
    )
