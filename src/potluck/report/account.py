"""The account of a run: achieved against the sum of solo speeds, and where every lost second went.

In a run of W seconds worker i could have done solo_i * W samples alone. What it did not do it lost, second by second:
each second of waiting costs solo_i samples, and a second of work costs solo_i less what was done in it. So the losses,
as parts of all that could have been done, and the efficiency add up to 1. A wait for a slower worker is booked where it
comes from: under that worker's machine, and what it did meanwhile.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from potluck.report.ledger import WAITED_FOR, Ledger, Sums

CAUSES = {
    "data_wait": "waiting for training data",
    "compute": "computing slower than alone",
    "exposed_exchange": "waiting for gradients from other machines",
    "commit": "commit vote",
    "rest": "the script, events and checkpoints",
    "retry": "repeated steps",
}
_LEAST_S = 1e-9  # less is the rounding of sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What one cause on one machine cost it and those who waited for it."""

    cause: str
    machine: str
    """Where it comes from."""
    seconds: float
    """Of the machine's own workers, on average."""
    waited_s: float = 0.0
    """Of each worker elsewhere, on average: its wait for this."""
    part: float
    """Of all that could have been done, by everybody."""


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
    """By machine, of those that took samples, weighed by the part of the time that each was here; empty if no plan
    told. Their sum is what the run is held against."""
    losses: tuple[Loss, ...]
    """The largest first; empty if the solo speeds are not known."""
    num_plan_changes: int
    benched: dict[str, str]
    """Machines and why, as last told."""
    slowest_link: str
    """The machine whose link slows the exchange of all; empty where none stands out."""
    speed_alone: dict[str, float] = field(default_factory=dict)
    """Samples/s of each machine when it trains alone, not weighed."""
    samples: dict[str, int] = field(default_factory=dict)
    """By machine, of those steps."""
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


def account_of(
    ledger: Ledger, *, machine_of: Mapping[str, str], benched: dict[str, str], slowest_link: str = ""
) -> Account | None:
    """The account of the steps in a ledger; None if none is whole."""
    sums = ledger.sums()
    if not sums.num_steps:
        return None
    solo_of = {worker: sums.solo_speed(worker) for worker in sums.spent_s}
    num_steps: dict[str, int] = defaultdict(int)
    samples: dict[str, int] = defaultdict(int)
    alone: dict[str, float] = defaultdict(float)
    solo: dict[str, float] = defaultdict(float)
    for worker, causes in sums.spent_s.items():
        # In the mean over the run: a worker that was away for half of it counts half.
        solo[machine_of[worker]] += solo_of[worker] * sum(causes.values()) / sums.accounted_s
        num_steps[machine_of[worker]] += sums.num_worker_steps[worker]
        samples[machine_of[worker]] += round(sums.done[worker])
        alone[machine_of[worker]] += solo_of[worker]
    step_parts_s: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for worker, causes in sums.spent_s.items():
        for cause, seconds in causes.items():
            step_parts_s[machine_of[worker]][cause] += seconds / num_steps[machine_of[worker]]
    is_known = sums.is_predicted and all(solo_of.values())
    slowest_link = slowest_link or sums.slowest_link
    return Account(
        num_steps=sums.num_steps,
        wall_s=sums.wall_s,
        accounted_s=sums.accounted_s,
        samples_per_s=sums.samples / sums.wall_s,
        predicted_samples_per_s=sums.samples / sums.predicted_s if sums.is_predicted else None,
        predicted_error=sums.doubt_s / sums.predicted_s if sums.is_predicted else None,
        solo_samples_per_s=dict(solo) if is_known else {},
        losses=_losses(sums, solo_of, machine_of, slowest_link if slowest_link in solo else ""),
        num_plan_changes=ledger.num_plan_changes,
        benched=benched,
        slowest_link=slowest_link,
        speed_alone=dict(alone) if is_known else {},
        samples=dict(samples),
        step_parts_s={machine: dict(parts) for machine, parts in step_parts_s.items()},
    )


def _losses(
    sums: Sums, solo_of: Mapping[str, float], machine_of: Mapping[str, str], slowest_link: str
) -> tuple[Loss, ...]:
    """Every loss under its cause and the machine that it comes from, the largest first."""
    total = sum(solo_of[worker] * sum(causes.values()) for worker, causes in sums.spent_s.items()) or 1.0
    workers_on = Counter(machine_of[worker] for worker in sums.spent_s)
    own_s: dict[tuple[str, str], float] = defaultdict(float)
    waited_s: dict[tuple[str, str], float] = defaultdict(float)
    part: dict[tuple[str, str], float] = defaultdict(float)

    def book(cause: str, machine: str, *, own: float, others: float, lost: float) -> None:
        """Seconds of the machine's own workers and of all others, and the samples that these could have done."""
        own_s[cause, machine] += own / workers_on[machine]
        waited_s[cause, machine] += others / max(1, len(sums.spent_s) - workers_on[machine])
        part[cause, machine] += lost / total

    for worker, spent_s in sums.spent_s.items():
        machine, solo = machine_of[worker], solo_of[worker]
        for cause in CAUSES:
            seconds, where = spent_s[cause], machine
            if cause == "compute":
                seconds = max(0.0, seconds - sums.done[worker] / solo) if solo else 0.0
            elif cause == "exposed_exchange" and slowest_link:
                where = slowest_link
            own = seconds if where == machine else 0.0
            book(cause, where, own=own, others=seconds - own, lost=seconds * solo)
    waiters = list(sums.waits.column)
    solos = np.array([solo_of[waiter] for waiter in waiters])
    machines = np.array([machine_of[waiter] for waiter in waiters])
    for culprit, waits_s in sums.waits.seconds.items():
        num_known = waits_s.shape[1]
        own = waits_s[:, machines[:num_known] == machine_of[culprit]].sum(axis=1)
        for index, cause in enumerate(WAITED_FOR):
            all_s, lost = float(waits_s[index].sum()), float(waits_s[index] @ solos[:num_known])
            book(cause, machine_of[culprit], own=float(own[index]), others=all_s - float(own[index]), lost=lost)
    losses = [
        Loss(
            cause=cause,
            machine=machine,
            seconds=own_s[cause, machine],
            waited_s=waited_s[cause, machine],
            part=part[cause, machine],
        )
        for cause, machine in part
        if own_s[cause, machine] + waited_s[cause, machine] > _LEAST_S
    ]
    return tuple(sorted(losses, key=lambda loss: (-loss.part, -loss.seconds - loss.waited_s)))
