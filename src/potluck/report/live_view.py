"""Events of a run as they arrive from all workers: every step, epoch and notice once, from its first writer."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import msgspec

from potluck.core.errors import EventLogError
from potluck.events.lines import parse_lines
from potluck.events.progress_lines import backend_text
from potluck.events.state import RunState, apply
from potluck.events.types import (
    AnyEvent,
    BackendChosen,
    CheckpointSaved,
    MachineUsed,
    MetricsLogged,
    Notice,
    Record,
    RunEnded,
    RunResumed,
    StepCommitted,
)
from potluck.report.merge import Merge
from potluck.report.same_event import key_of

_FILES_S = 3.0  # events of other machines arrive at most so much later


class LiveView:
    """Merges the events of all workers: workers commit the same steps, so the first event about a step is enough.

    A resumed run goes on from the newest checkpoint of all workers; a worker with an older one is healed. The view
    names that checkpoint when the step after it is committed, or when events of all workers must have arrived.
    """

    def __init__(self, since: float = 0.0) -> None:
        self.state = RunState()
        self._since = since
        self._loaded: list[tuple[int, str]] = []
        """The step and the name of each checkpoint that a worker has loaded."""
        self._checkpoint_notices: set[tuple[str, int]] = set()
        """The file and sequence number of each worker's own Notice about the checkpoint that it has loaded."""
        self.merge = Merge()
        self._began_at: float | None = None
        self._first_step = 0
        self._has_gone_on = False
        self._told: set[object] = set()
        self._metric_steps: dict[str, int] = {}
        self._usage_files: dict[str, str] = {}
        """By machine: the worker's file whose MachineUsed events are passed on."""
        self.damaged: dict[str, EventLogError] = {}
        """By file with a damaged line: the error of the first such line."""

    def take(self, chunks: list[tuple[str, str]]) -> Iterator[tuple[Record, RunState]]:
        """Yield the new events in (file, lines) chunks, in the order of their times, each with the state after it.

        Events before `since` are skipped: they belong to an earlier start of the run.
        """
        told: list[tuple[Record, str]] = []
        for file, lines in chunks:
            records = [record for record in self._parse(lines.encode(), file) if record.time >= self._since]
            self.merge.take(Path(file).stem, records)
            told += [(record, file) for record in records]
        self.merge.fold()
        for record, file in sorted(told, key=lambda one: one[0].time):
            if self._is_of_a_checkpoint(record, file):
                continue
            if self._is_new(record.event, file):
                if isinstance(record.event, StepCommitted) and not self._has_gone_on:
                    yield from self._go_on(record, record.event.step)
                self.state = apply(self.state, record)
                is_use = isinstance(record.event, MachineUsed)
                yield record, replace(self.state, machine=_machine(file)) if is_use else self.state

    def _is_of_a_checkpoint(self, record: Record, file: str) -> bool:
        """Whether the record is about the checkpoint that one worker has loaded; remembers that checkpoint."""
        if isinstance(record.event, RunResumed):
            self._checkpoint_notices.add((file, record.sequence + 1))
            if not self._has_gone_on:
                self._loaded.append((record.event.step, f"{_machine(file)}'s {record.event.checkpoint}"))
            return True
        return (file, record.sequence) in self._checkpoint_notices and isinstance(record.event, Notice)

    def _go_on(self, record: Record, step: int) -> Iterator[tuple[Record, RunState]]:
        """Yield a Notice that names the checkpoint which the run goes on from, at one of the run's first steps."""
        if self._began_at is None:
            self._began_at, self._first_step = record.time, step
        # A worker that crashed and loads a checkpoint of this very start is healed by the others.
        self._loaded = [one for one in self._loaded if one[0] < self._first_step]
        loaded, name = max(self._loaded, default=(-1, ""))
        self._has_gone_on = loaded == step - 1 or record.time - self._began_at > _FILES_S
        if self._has_gone_on and self._loaded:
            text = f"going on after step {loaded:,} from {name}"
            yield msgspec.structs.replace(record, event=Notice(text=text)), self.state

    def _parse(self, lines: bytes, file: str) -> list[Record]:
        """The events of a file's lines, without damaged lines: one of these must not hide all other events."""
        try:
            return parse_lines(lines, Path(file))
        except EventLogError as error:
            self.damaged.setdefault(file, error)
        records = []
        for line in lines.split(b"\n"):
            with suppress(EventLogError):
                records += parse_lines(line, Path(file))
        return records

    def end(self, reason: str) -> tuple[Record, RunState]:
        """A RunEnded event with the host's reason: the RunEnded event of one worker is not the end of the run."""
        ended = RunEnded(reason=cast("Literal['finished', 'stopped', 'failed']", reason), step=self.state.step)
        record = Record(sequence=0, time=self.state.updated_at, event=ended)
        self.state = apply(self.state, record)
        return record, self.state

    def _is_new_backend(self, chosen: BackendChosen) -> bool:
        """Whether no worker has written it before; a worker that joins later writes what the others have written."""
        before = self.state.backend
        return before is None or (chosen.step > before.step and backend_text(chosen) != backend_text(before))

    def _is_new(self, event: AnyEvent, file: str) -> bool:  # noqa: PLR0911  one return an event type
        match event:
            case StepCommitted(step=step):
                return step > self.state.step
            case MetricsLogged(step=step, values=values):
                is_new = any(step > self._metric_steps.get(name, -1) for name in values)
                self._metric_steps.update(dict.fromkeys(values, step) if is_new else {})
                return is_new
            case MachineUsed():  # one worker's measurements stand for its machine
                return self._usage_files.setdefault(_machine(file), file) == file
            case CheckpointSaved():
                return True
            case BackendChosen():
                return self._is_new_backend(event)
            case RunEnded():
                return False
        return self._first(key_of(event))

    def _first(self, key: object) -> bool:
        if key in self._told:
            return False
        self._told.add(key)
        return True


def _machine(file: str) -> str:
    return Path(file).stem.rpartition("-")[0]
