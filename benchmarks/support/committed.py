"""The steps that machines which met have committed, from the files that they left."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.support.gathering import Gathering
from potluck.core.errors import EventLogError
from potluck.events.log import read_records
from potluck.events.types import StepCommitted

_PLACES = ("home/runs", "experiments", "experiments.gone")
"""Where a machine has a run's folder: of its host's runs, of its own as the first host, of that host without a disk."""


class Committed(NamedTuple):
    """A committed step, and when its worker wrote it down."""

    time: float
    step: StepCommitted


def committed(file: Path) -> list[Committed]:
    """The committed steps in an event file; none while it cannot be read."""
    try:
        return [Committed(one.time, one.event) for one in read_records(file) if isinstance(one.event, StepCommitted)]
    except (EventLogError, OSError):  # it is being written, or its disk is gone
        return []


def run_files(gathering: Gathering, machine: str, run: str, pattern: str) -> list[Path]:
    """The run's files on that machine, wherever it has a folder of the run."""
    place = gathering.place(machine)
    return [file for folder in _PLACES for file in (place / folder / run).glob(pattern)]


def committed_by(gathering: Gathering, machine: str, run: str) -> list[Committed]:
    """The committed steps of that machine's own workers, each once."""
    files = run_files(gathering, machine, run, f"events/{machine}-*.jsonl")
    found = {(one.time, one.step.step): one for file in files for one in committed(file)}
    return list(found.values())


def num_whole(steps: Iterable[StepCommitted]) -> dict[int, int]:
    """By step: how many groups of workers have written down that they committed it with all of its samples.

    Two groups under two hosts may have the same number: then the samples of both are more than the step's.
    """
    samples: dict[tuple[int, int], int] = defaultdict(int)
    wanted: dict[int, int] = {}
    for one in steps:
        samples[one.step, one.quorum_id] += one.own_samples
        wanted[one.step] = one.samples
    whole = dict.fromkeys(wanted, 0)
    for (step, _), number in samples.items():
        whole[step] += 2 if number > wanted[step] else number == wanted[step]
    return whole
