"""How far a run's plan is from the best one, step by step, at the speeds that its machines had just then.

A computer that does other things too makes whole runs slower and faster; comparing each step with the best split of the
same moment leaves that out. A machine's speed is the median of its samples a second over the seven steps around one.
"""

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.support.crew import LabCrew
from potluck.events.types import StepCommitted

_REACH = 3
_IN_A_ROW = 5


def steps_of(crew: LabCrew, name: str) -> dict[int, StepCommitted]:
    """What the machine's worker committed, by the number of the step."""
    return {event.step: event for event in crew.steps(name)}


def distances(workers: Sequence[Mapping[int, StepCommitted]]) -> list[float]:
    """For every step: its slowest work over that of the best split, minus 1."""
    steps = sorted(set.intersection(*(set(worker) for worker in workers)))
    found = []
    for at, step in enumerate(steps):
        window = steps[max(0, at - _REACH) : at + _REACH + 1]
        speeds = [statistics.median(_speed(worker[one]) for one in window) for worker in workers]
        shares = [worker[step].own_samples for worker in workers]
        slowest_s = max(share / speed for share, speed in zip(shares, speeds, strict=True) if share)
        found.append(slowest_s * sum(speeds) / sum(shares) - 1)
    return found


def steps_until(distances: Sequence[float], within: float) -> int | None:
    """Steps until a few in a row are so near; None if that never comes."""
    for done in range(len(distances) - _IN_A_ROW + 1):
        if statistics.median(distances[done : done + _IN_A_ROW]) <= within and distances[done] <= within:
            return done
    return None


def _speed(event: StepCommitted) -> float:
    """Samples a second of its own work; 0 for a worker without samples."""
    assert event.timing is not None
    return event.own_samples / event.timing.own_s if event.own_samples else 0.0
