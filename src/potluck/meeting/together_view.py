"""One view of a run from the events of all its workers: every step, epoch and notice once, whoever told it first."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, cast

from potluck.events.log import parse_records
from potluck.events.state import RunState, apply
from potluck.events.types import (
    AnyEvent,
    CheckpointSaved,
    EpochEnded,
    Evaluated,
    MetricsLogged,
    ModelPrepared,
    Notice,
    Record,
    RunEnded,
    RunResumed,
    RunStarted,
    StepCommitted,
    TrainingBegan,
)

_STALL = re.compile(r" \(\d+(\.\d+)? s\)$")


class TogetherView:
    """Workers commit the same steps, so the first to tell of one tells it for all."""

    def __init__(self) -> None:
        self.state = RunState()
        self._told: set[object] = set()

    def take(self, file: str, lines: str) -> Iterator[tuple[Record, RunState]]:
        """What is new in some lines of one worker's file."""
        for record in parse_records(lines.encode(), Path(file)):
            if self._is_new(record.event):
                self.state = apply(self.state, record)
                yield record, self.state

    def end(self, reason: str) -> None:
        """The run's end is the host's to tell: one worker's end is not the run's."""
        ended = RunEnded(reason=cast("Literal['finished', 'stopped', 'failed']", reason), step=self.state.step)
        record = Record(sequence=0, time=self.state.updated_at, event=ended)
        self.state = apply(self.state, record)

    def _is_new(self, event: AnyEvent) -> bool:
        match event:
            case StepCommitted(step=step):
                return step > self.state.step
            case RunStarted() | ModelPrepared() | TrainingBegan() | RunResumed():
                return self._first(type(event))
            case EpochEnded(epoch=epoch):
                return self._first(("epoch", epoch))
            case Evaluated(step=step, name=name) as evaluated:
                return bool(evaluated.values) and self._first(("evaluated", step, name))
            case Notice(text=text):
                return self._first(("notice", _STALL.sub("", text)))
            case CheckpointSaved() | MetricsLogged():
                return True
        return False

    def _first(self, key: object) -> bool:
        if key in self._told:
            return False
        self._told.add(key)
        return True
