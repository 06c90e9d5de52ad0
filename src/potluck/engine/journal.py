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
from potluck.events.types import AnyEvent, GpuUse, MachineUsed, Notice, Record, RunEnded, StepCommitted
from potluck.machine.usage import Usage, UsageMeter

Watcher: TypeAlias = Callable[[Record, RunState], None]


class Journal:
    """The event log of one worker, the state it adds up to, and whoever watches."""

    def __init__(
        self, log: EventLog, metrics_file: Path, watchers: list[Watcher], meter: UsageMeter | None = None
    ) -> None:
        self._log = log
        self._metrics_file = metrics_file
        self._watchers = watchers
        self._meter = meter or UsageMeter()
        self.state = replay(read_records(log.path))  # a resumed run goes on in the same file

    def emit(self, event: AnyEvent) -> None:
        record = self._log.append(event)
        self.state = apply(self.state, record)
        for watcher in self._watchers:
            watcher(record, self.state)
        if isinstance(event, StepCommitted) and (usage := self._meter.look()) is not None:
            self.emit(_as_event(usage))

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


def _as_event(usage: Usage) -> MachineUsed:
    return MachineUsed(
        cpu=usage.cpu,
        memory_bytes=usage.memory_bytes,
        memory_total_bytes=usage.memory_total_bytes,
        sent_bytes_per_s=usage.sent_bytes_per_s,
        received_bytes_per_s=usage.received_bytes_per_s,
        address=usage.address,
        sending_bytes_per_s=usage.sending_bytes_per_s,
        gpus=[
            GpuUse(
                name=gpu.name,
                busy=gpu.busy,
                memory_bytes=gpu.memory_bytes,
                memory_total_bytes=gpu.memory_total_bytes,
                power_w=gpu.power_w,
            )
            for gpu in usage.gpus
        ],
    )
