"""Reads a run's folder: the run's pace, lines beyond given offsets, and summaries when the run is over."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from potluck.core.atomic import write_text
from potluck.core.errors import EventLogError
from potluck.core.run_folder import RunFolder
from potluck.events.lines import open_events
from potluck.events.log import read_first_records, read_last_records, read_records
from potluck.events.recent_speed import RecentSpeed
from potluck.events.state import LEAST_S, RunState, replay
from potluck.events.summary import summarise
from potluck.events.types import MachineUsed, Notice, StepCommitted, TrainingBegan, Waiting
from potluck.planning.replanning.announcements import MOST_PLAN_WRITERS
from potluck.report.account_file import write_account

OUTPUT_SUFFIX = ".out.log"
_TAIL_BYTES = 1 << 14
_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A run's last step and speed, by the last events of its furthest worker."""

    step: int = 0
    loss: float | None = None
    samples_per_s: float = 0.0
    own_samples_per_s: dict[str, float] | None = None
    """Each worker's own samples a second, by the worker's name."""
    use: dict[str, MachineUsed] = field(default_factory=dict)
    """The newest MachineUsed event of each worker, if it is among the worker's last events, by the worker's name."""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """The Waiting events of workers that have waited long since their last step, by the worker's name."""


def read_pace(folder: Path) -> Pace:
    """The run's pace, from the ends of its event files."""
    furthest, own, waiting = Pace(), {}, {}
    use: dict[str, MachineUsed] = {}
    for file in RunFolder(folder).event_files():
        try:
            told = [record.event for record in read_last_records(file, _TAIL_BYTES)]
        except (EventLogError, OSError):  # one damaged file must not hide the other workers
            continue
        last = next((event for event in reversed(told) if not isinstance(event, Notice | MachineUsed)), None)
        if isinstance(last, Waiting):
            waiting[file.stem] = last
        if used := [event for event in told if isinstance(event, MachineUsed)]:
            use[file.stem] = used[-1]
        speed, own_speed = RecentSpeed(), RecentSpeed()
        newest: StepCommitted | None = None
        for event in told:
            if isinstance(event, StepCommitted):
                speed.add(event.samples, event.seconds)
                own_speed.add(event.own_samples, event.seconds)
                newest = event
        if newest is None or speed.step_s <= LEAST_S:
            continue
        own[file.stem] = own_speed.samples_per_s
        if newest.step >= furthest.step:
            furthest = Pace(step=newest.step, loss=newest.loss, samples_per_s=speed.samples_per_s)
    return replace(furthest, own_samples_per_s=own, use=use, waiting=waiting)


def read_length(folder: Path) -> int:
    """The step at which the run will end; 0 until a worker has written it."""
    for file in RunFolder(folder).event_files():
        try:
            records = read_first_records(file, _TAIL_BYTES)
        except (EventLogError, OSError):
            continue
        for record in records:
            if isinstance(record.event, TrainingBegan):
                return record.event.last_step
    return 0


def write_summaries(folder: RunFolder) -> None:
    """Write logs/rank_<n>_metrics.json of every worker from its events: workers wrote theirs on their own machines."""
    states = []
    for file in folder.event_files():
        with suppress(EventLogError):
            states.append(replay(read_records(file)))
    for state in with_plans(states):
        if state.run:
            text = json.dumps(summarise(state), indent=2, allow_nan=False)
            write_text(folder.metrics_file(state.worker), f"{text}\n")


def with_plans(states: Sequence[RunState]) -> Iterator[RunState]:
    """The states of a run's workers; on many machines, those that write no plans get the newest of those that do."""
    planned = [state for state in states if state.shares]
    if len({state.machine for state in states}) <= MOST_PLAN_WRITERS or not planned:
        yield from states
        return
    newest = max(planned, key=lambda state: (state.step, state.num_plan_changes))  # who joined late has seen fewer
    for state in states:
        yield replace(
            state,
            shares=newest.shares,
            predicted_samples_per_s=newest.predicted_samples_per_s,
            num_plan_changes=newest.num_plan_changes,
            benched=newest.benched,
        )


def conclude(folder: RunFolder) -> None:
    """Write the summaries and the account of a run whose files are all at the host."""
    write_summaries(folder)
    with suppress(EventLogError):
        write_account(folder)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines of one file, and where the next ones begin."""

    file: str
    text: str
    next_offset: int


def _news_files(folder: Path, *, only_logs: bool = False) -> list[Path]:
    """The files whose lines are news: the workers' output, and events.

    Logs are read first: a line that a script prints for all workers is in the events before it is in a log.
    """
    events = [] if only_logs else sorted(folder.glob("events/*.jsonl"))
    return [*sorted(folder.glob(f"logs/*{OUTPUT_SUFFIX}")), *events]


def lengths(folder: Path) -> dict[str, int]:
    """The current size of each file with news."""
    return {str(path.relative_to(folder)): path.stat().st_size for path in _news_files(folder)}


def read_news(
    folder: Path, offsets: dict[str, int], *, only_logs: bool = False, tail_bytes: int | None = None
) -> list[Chunk]:
    """Whole lines beyond the offsets, of the workers' output and of every event file.

    Of a file without an offset, all lines, or those that begin within its last `tail_bytes`.
    """
    chunks = []
    for path in _news_files(folder, only_logs=only_logs):
        name = str(path.relative_to(folder))
        offset = offsets.get(name, 0)
        try:
            with open_events(path) as file:
                if name not in offsets and tail_bytes is not None:
                    offset = _begin_of_tail(file, tail_bytes)
                file.seek(offset, os.SEEK_SET)
                content = file.read(_CHUNK_BYTES)
        except (EventLogError, OSError):  # a folder of that name, or a deleted file: go on with the other files
            continue
        whole = content[: content.rfind(b"\n") + 1]
        if whole or (name not in offsets and tail_bytes is not None):
            chunks.append(Chunk(name, whole.decode(errors="replace"), offset + len(whole)))
    return chunks


def _begin_of_tail(file: IO[bytes], tail_bytes: int) -> int:
    """Where the first line begins that lies within the file's last bytes."""
    size = file.seek(0, os.SEEK_END)
    begin = max(0, size - tail_bytes)
    if begin == 0:
        return 0
    file.seek(begin - 1)  # a line may begin exactly there
    file.readline(_CHUNK_BYTES)  # at most: a progress bar may write one endless line
    return file.tell()
