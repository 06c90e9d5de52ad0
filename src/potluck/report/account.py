"""The account of a run: achieved against the sum of solo speeds, and where every lost second went.

In a run of W seconds worker i could have done solo_i * W samples alone. What it did not do it lost, second by second:
each second of waiting costs solo_i samples, and a second of work costs solo_i less what was done in it. So the losses,
as parts of all that could have been done, and the efficiency add up to 1.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from potluck.core.run_folder import RunFolder
from potluck.events.log import read_records
from potluck.events.types import MachineBenched, PlanChanged, Record, RunStarted, StepCommitted
from potluck.report.ledger import Ledger, step_columns

CAUSES = {
    "straggler_wait": "waiting for slower workers",
    "exposed_exchange": "exchange that work does not hide",
    "data_wait": "waiting for data",
    "commit": "the vote",
    "rest": "the script's own code, events, checkpoints",
    "retry": "steps that a lost worker spoiled",
    "pace": "working slower than alone",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What one cause cost on one machine."""

    cause: str
    machine: str
    seconds: float
    """Of the machine's workers, on average; negative for pace where they were faster than alone."""
    part: float
    """Of all that could have been done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A run in numbers."""

    num_steps: int
    """Steps with a timing of every worker: what the account rests on."""
    wall_s: float
    accounted_s: float
    """What the timings' parts add up to; wall_s but for what lies between a worker's clocks."""
    samples_per_s: float
    predicted_samples_per_s: float | None
    """By the plans in force, weighed by their steps."""
    predicted_error: float | None
    solo_samples_per_s: dict[str, float]
    """By machine, of those that took samples; empty if no plan told."""
    losses: tuple[Loss, ...]
    """The largest first; empty if the solo speeds are not known."""
    num_plan_changes: int
    benched: dict[str, str]
    """Machines and why, as last told."""
    slowest_link: str
    """The machine whose link carries the ring, if links were measured."""
    step_parts_s: dict[str, dict[str, float]] = field(default_factory=dict)
    """The mean step of each machine's workers, by cause and compute: the parts add up to the step."""

    @property
    def efficiency(self) -> float | None:
        """Achieved samples/s over the sum of solo speeds of the machines that took samples."""
        total = sum(self.solo_samples_per_s.values())
        return self.samples_per_s / total if total else None

    @property
    def prediction_error(self) -> float | None:
        """Predicted over measured, less 1."""
        if self.predicted_samples_per_s is None or not self.samples_per_s:
            return None
        return self.predicted_samples_per_s / self.samples_per_s - 1

    def by_cause(self) -> dict[str, float]:
        """The losses of all machines together, as parts of all that could have been done."""
        parts: dict[str, float] = defaultdict(float)
        for loss in self.losses:
            parts[loss.cause] += loss.part
        return dict(sorted(parts.items(), key=lambda item: -item[1]))

    def as_data(self) -> dict[str, Any]:
        """For scripts and for the run's folder: keys are only ever added."""
        return {
            **asdict(self),
            "efficiency": self.efficiency,
            "prediction_error": self.prediction_error,
            "lost_by_cause": self.by_cause(),
        }


def make_account(records: Mapping[str, Iterable[Record]], first_step: int = 1) -> Account | None:
    """The account of the steps from `first_step` on, from every worker's records by its name; None if none is timed.

    Only steps with a timing of each worker that took part in them count: the wait for others needs all of them.
    """
    ledger = Ledger(first_step=first_step, most_pending=None)
    machine_of: dict[str, str] = {}
    benched: dict[str, str] = {}
    for worker, lines in records.items():
        machine_of[worker] = worker
        steps: list[StepCommitted] = []
        for record in lines:
            match record.event:
                case RunStarted(machine=machine):
                    machine_of[worker] = machine
                case StepCommitted() as event:
                    steps.append(event)
                case PlanChanged(step=step) as event:
                    ledger.plans[step] = event
                case MachineBenched(machine=machine, reason=reason):
                    benched[machine] = reason
        ledger.add(worker, np.array([step.step for step in steps], dtype=np.int64), step_columns(steps))
    return account_of(ledger, machine_of=machine_of, benched=benched)


def read_account(folder: RunFolder, first_step: int = 1) -> Account | None:
    """The account of a run from its folder."""
    return make_account({file.stem: read_records(file) for file in folder.event_files()}, first_step)


def account_of(ledger: Ledger, *, machine_of: Mapping[str, str], benched: dict[str, str]) -> Account | None:
    """The account of the steps in a ledger; None if none is whole."""
    sums = ledger.sums()
    if not sums.num_steps:
        return None
    total = sum(sums.could.values())
    is_known = sums.is_predicted and all(sums.could.values())
    solo: dict[str, float] = defaultdict(float)
    workers_on: dict[str, int] = defaultdict(int)
    num_steps: dict[str, int] = defaultdict(int)
    for worker, could in sums.could.items():
        machine = machine_of[worker]
        solo[machine] += could / sums.accounted_s
        workers_on[machine] += 1
        num_steps[machine] += sums.num_worker_steps[worker]
    lost_s: dict[tuple[str, str], float] = defaultdict(float)
    part: dict[tuple[str, str], float] = defaultdict(float)
    step_parts_s: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for worker, causes in sums.lost.items():
        machine = machine_of[worker]
        spent_s = {**sums.spent_s[worker], "pace": sums.pace_s[worker]}
        for cause, lost in causes.items():
            lost_s[cause, machine] += spent_s[cause] / workers_on[machine]
            part[cause, machine] += lost / total if total else 0.0
        for cause, seconds in sums.spent_s[worker].items():
            step_parts_s[machine][cause] += seconds / num_steps[machine]
    losses = [
        Loss(cause=cause, machine=machine, seconds=seconds, part=part[cause, machine])
        for (cause, machine), seconds in lost_s.items()
        if seconds
    ]
    return Account(
        num_steps=sums.num_steps,
        wall_s=sums.wall_s,
        accounted_s=sums.accounted_s,
        samples_per_s=sums.samples / sums.wall_s,
        predicted_samples_per_s=sums.samples / sums.predicted_s if sums.is_predicted else None,
        predicted_error=sums.doubt_s / sums.predicted_s if sums.is_predicted else None,
        solo_samples_per_s=dict(solo) if is_known else {},
        losses=tuple(sorted(losses, key=lambda loss: (-loss.part, -loss.seconds))),
        num_plan_changes=max(0, len(ledger.plans) - 1),
        benched=benched,
        slowest_link=sums.slowest_link,
        step_parts_s={machine: dict(parts) for machine, parts in step_parts_s.items()},
    )
