"""One view of a run from the events of all its workers: every step, epoch and notice once, whoever told it first."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from potluck.events.log import parse_lines
from potluck.events.state import RunState, apply
from potluck.events.types import (
    AnyEvent,
    CheckpointSaved,
    EpochEnded,
    Evaluated,
    MachineBenched,
    MachineUnbenched,
    MachineUsed,
    MetricsLogged,
    Notice,
    PlanChanged,
    Record,
    RunEnded,
    StepCommitted,
)

_STALL = re.compile(r" \(\d+(\.\d+)? s\)$")


class TogetherView:
    """Workers commit the same steps, so the first to tell of one tells it for all."""

    def __init__(self) -> None:
        self.state = RunState()
        self._told: set[object] = set()
        self._metric_steps: dict[str, int] = {}
        self._tellers: dict[str, str] = {}

    def take(self, chunks: list[tuple[str, str]]) -> Iterator[tuple[Record, RunState]]:
        """What is new in some lines of several workers' files, in the order in which it happened."""
        records = [(record, file) for file, lines in chunks for record in parse_lines(lines.encode(), Path(file))]
        for record, file in sorted(records, key=lambda told: told[0].time):
            if self._is_new(record.event, file):
                self.state = apply(self.state, record)
                is_use = isinstance(record.event, MachineUsed)
                yield record, replace(self.state, machine=_machine(file)) if is_use else self.state

    def end(self, reason: str) -> tuple[Record, RunState]:
        """The run's end is the host's to tell: one worker's end is not the run's."""
        ended = RunEnded(reason=cast("Literal['finished', 'stopped', 'failed']", reason), step=self.state.step)
        record = Record(sequence=0, time=self.state.updated_at, event=ended)
        self.state = apply(self.state, record)
        return record, self.state

    def _is_new(self, event: AnyEvent, file: str) -> bool:
        match event:
            case StepCommitted(step=step):
                return step > self.state.step
            case MetricsLogged(step=step, values=values):
                is_new = any(step > self._metric_steps.get(name, -1) for name in values)
                self._metric_steps.update(dict.fromkeys(values, step) if is_new else {})
                return is_new
            case MachineUsed():  # of several workers on a machine, one tells
                return self._tellers.setdefault(_machine(file), file) == file
            case CheckpointSaved():
                return True
            case RunEnded():
                return False
        return self._first(_key(event))

    def _first(self, key: object) -> bool:
        if key in self._told:
            return False
        self._told.add(key)
        return True


def _machine(file: str) -> str:
    return Path(file).stem.rpartition("-")[0]


def _key(event: AnyEvent) -> object:
    """What two workers' words about the same thing have in common."""
    match event:
        case EpochEnded(epoch=epoch):
            return "epoch", epoch
        case Evaluated(step=step, name=name):
            return "evaluated", step, name
        case Notice(text=text):
            return "notice", _STALL.sub("", text)
        case PlanChanged(step=step):
            return "plan", step
        case MachineBenched(step=step, machine=machine) | MachineUnbenched(step=step, machine=machine):
            return type(event), step, machine
    return type(event)
