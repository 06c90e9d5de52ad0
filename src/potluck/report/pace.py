"""Throughput of a run, and the parts of a mean step, recent or overall: pure functions of a run's view."""

from collections.abc import Mapping
from typing import Final

from potluck.events.recent_speed import RecentSpeed
from potluck.report.ledger import PARTS, Floats
from potluck.report.timeline import COLUMNS
from potluck.report.view import RunView

_STEPS, _SAMPLES, _SECONDS = (COLUMNS.index(name) for name in ("steps", "samples", "seconds"))
_FIRST_PART: Final = COLUMNS.index(PARTS[0])


def recent_samples_per_s(view: RunView, seconds: float) -> float:
    """Throughput of the last seconds before the newest step."""
    speed = RecentSpeed(seconds)
    for _, row in () if view.farthest is None else view.farthest.recent:
        speed.add(row[_SAMPLES], row[_SECONDS])
    return float(speed.samples_per_s)


def parts(view: RunView) -> dict[str, dict[str, float]]:
    """The mean step of every machine by part, in seconds, over the whole run."""
    names, _, _, sums = view.series()
    return _mean_parts(view, {name: sums[index].sum(axis=0) for index, name in enumerate(names)})


def recent_parts(view: RunView, seconds: float) -> dict[str, dict[str, float]]:
    """The mean step of every machine by part, in seconds, over the last seconds."""
    return _mean_parts(view, {name: worker.sum_of_recent(seconds) for name, worker in view.merge.workers.items()})


def _mean_parts(view: RunView, totals: Mapping[str, Floats]) -> dict[str, dict[str, float]]:
    by_machine: dict[str, Floats] = {}
    for name, total in totals.items():
        machine = view.merge.workers[name].machine
        by_machine[machine] = by_machine.get(machine, 0.0) + total
    return {
        machine: {part: float(total[_FIRST_PART + index] / total[_STEPS]) for index, part in enumerate(PARTS)}
        for machine, total in by_machine.items()
        if total[_STEPS]
    }
