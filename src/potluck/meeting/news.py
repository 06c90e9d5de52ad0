"""What a run's folder says: where each worker stands, and what was written since somebody last looked."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from potluck.core.atomic import write_text
from potluck.core.errors import EventLogError
from potluck.core.run_folder import RunFolder
from potluck.events.log import parse_lines, read_last_records, read_records
from potluck.events.state import replay
from potluck.events.summary import summarise
from potluck.events.types import StepCommitted, TrainingBegan
from potluck.report.account_file import write_account

OUTPUT_SUFFIX = ".out.log"
_TAIL_BYTES = 1 << 14
_CHUNK_BYTES = 1 << 18
_RECENT_STEPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a run goes, by the last steps of its furthest worker."""

    step: int = 0
    loss: float | None = None
    samples_per_s: float = 0.0
    own_samples_per_s: dict[str, float] | None = None
    """Each worker's part of it, by the worker's name."""


def read_pace(folder: Path) -> Pace:
    """Look at the ends of the event files."""
    furthest, own = Pace(), {}
    for file in RunFolder(folder).event_files():
        try:
            steps = [r.event for r in read_last_records(file, _TAIL_BYTES) if isinstance(r.event, StepCommitted)]
        except EventLogError:  # one machine's damaged file is no reason to show nothing
            continue
        recent = steps[-_RECENT_STEPS:]
        seconds = sum(step.seconds for step in recent)
        if not recent or not seconds:
            continue
        own[file.stem] = sum(step.own_samples for step in recent) / seconds
        if recent[-1].step >= furthest.step:
            furthest = Pace(
                step=recent[-1].step,
                loss=recent[-1].loss,
                samples_per_s=sum(step.samples for step in recent) / seconds,
            )
    return Pace(step=furthest.step, loss=furthest.loss, samples_per_s=furthest.samples_per_s, own_samples_per_s=own)


def read_length(folder: Path) -> int:
    """The run's last step, once a worker knows it."""
    for file in RunFolder(folder).event_files():
        with file.open("rb") as lines:
            head = lines.read(_TAIL_BYTES)
        try:
            records = parse_lines(head[: head.rfind(b"\n") + 1], file)
        except EventLogError:
            continue
        for record in records:
            if isinstance(record.event, TrainingBegan):
                return record.event.last_step
    return 0


def write_summaries(folder: RunFolder) -> None:
    """logs/rank_<n>_metrics.json of every worker, from its events: each has written its own only where it was."""
    for file in folder.event_files():
        try:
            state = replay(read_records(file))
        except EventLogError:
            continue
        if state.run:
            text = json.dumps(summarise(state), indent=2, allow_nan=False)
            write_text(folder.metrics_file(state.worker), f"{text}\n")


def conclude(folder: RunFolder) -> None:
    """What a run's folder holds when everything has come home: summaries, and where the time went."""
    write_summaries(folder)
    with suppress(EventLogError):
        write_account(folder)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines of one file, and where the next ones begin."""

    file: str
    text: str
    next_offset: int


def read_news(folder: Path, offsets: dict[str, int]) -> list[Chunk]:
    """Whole lines beyond the offsets, in every event file and in what workers printed."""
    chunks = []
    files = [*sorted(folder.glob("events/*.jsonl")), *sorted(folder.glob(f"logs/*{OUTPUT_SUFFIX}"))]
    for path in files:
        name = str(path.relative_to(folder))
        offset = offsets.get(name, 0)
        if path.stat().st_size <= offset:
            continue
        with path.open("rb") as file:
            file.seek(offset, os.SEEK_SET)
            content = file.read(_CHUNK_BYTES)
        whole = content[: content.rfind(b"\n") + 1]
        if whole:
            chunks.append(Chunk(name, whole.decode(errors="replace"), offset + len(whole)))
    return chunks
