"""The account of a run: throughput against the sum of solo speeds, with the cause and the machine of every loss.

In a run of W seconds, worker i could train solo_i * W samples alone; the sum over all workers is the possible work.
A second in which the worker does not compute loses solo_i samples; a second of computing loses solo_i minus the samples
done in that second. As fractions of the possible work, the losses and the efficiency add up to 1. The wait for a slower
worker is booked under that worker's machine, and under the part of the step in which that worker took longer.
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
_LEAST_S = 1e-9  # smaller values are rounding errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Time lost to one cause on one machine, by the machine's own workers and by workers that waited for them."""

    cause: str
    machine: str
    """The machine that caused the loss."""
    seconds: float
    """Lost by each worker of the machine, on average."""
    waited_s: float = 0.0
    """Lost by each worker of other machines, on average, by waiting for this machine."""
    part: float
    """The lost samples as a fraction of all workers' possible work, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Throughput, predictions and losses of a run's steps."""

    num_steps: int
    """The steps that the account covers: those with a timing of every worker."""
    wall_s: float
    """The sum of the steps' durations."""
    accounted_s: float
    """The sum of the parts of all step timings; close to wall_s."""
    samples_per_s: float
    predicted_samples_per_s: float | None
    """The plans' prediction, each plan weighted by the number of its steps."""
    predicted_error: float | None
    """The relative error that the plans expected of their prediction."""
    solo_samples_per_s: dict[str, float]
    """By machine that took samples: its solo speed, times the fraction of the time that its workers took part. The sum
    is what the efficiency is measured against. Empty if there is no plan, or a solo speed is not known."""
    losses: tuple[Loss, ...]
    """The largest first. A worker whose solo speed is not known adds 0 to `Loss.part`, and nothing under compute."""
    num_plan_changes: int
    benched: dict[str, str]
    """By machine that is benched: the reason."""
    slowest_link: str
    """The machine whose link slows the all-reduce for all workers; empty if no link is clearly slower."""
    speed_alone: dict[str, float] = field(default_factory=dict)
    """By machine: the solo speed in samples/s, not weighted; empty where solo_samples_per_s is."""
    samples: dict[str, int] = field(default_factory=dict)
    """By machine: the samples of the covered steps."""
    step_parts_s: dict[str, dict[str, float]] = field(default_factory=dict)
    """By machine: a mean step of its workers in seconds, by part; the parts add up to the step."""

    @property
    def efficiency(self) -> float | None:
        """Achieved samples/s over the sum of solo speeds of the machines that took samples."""
        total = sum(self.solo_samples_per_s.values())
        return self.samples_per_s / total if total else None

    @property
    def prediction_error(self) -> float | None:
        """Predicted / measured - 1, of samples/s."""
        if self.predicted_samples_per_s is None or not self.samples_per_s:
            return None
        return self.predicted_samples_per_s / self.samples_per_s - 1

    def by_cause(self) -> dict[str, float]:
        """The sum of `Loss.part` over all machines, by cause; the largest first."""
        parts: dict[str, float] = defaultdict(float)
        for loss in self.losses:
            parts[loss.cause] += loss.part
        return dict(sorted(parts.items(), key=lambda item: -item[1]))

    def as_data(self) -> dict[str, Any]:
        """The account as plain data, for `--json` and account.json: keys are only ever added."""
        return {
            **asdict(self),
            "efficiency": self.efficiency,
            "prediction_error": self.prediction_error,
            "lost_by_cause": self.by_cause(),
        }


def account_of(
    ledger: Ledger, *, machine_of: Mapping[str, str], benched: dict[str, str], slowest_link: str = ""
) -> Account | None:
    """The account of the steps in a ledger; None if no step is whole."""
    sums = ledger.sums()
    if not sums.num_steps:
        return None
    solo_of = {worker: sums.solo_speed(worker) for worker in sums.spent_s}
    num_steps: dict[str, int] = defaultdict(int)
    samples: dict[str, int] = defaultdict(int)
    alone: dict[str, float] = defaultdict(float)
    solo: dict[str, float] = defaultdict(float)
    for worker, causes in sums.spent_s.items():
        # Weighted by presence: a worker that was away for half of the run counts half.
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
    """All losses by cause and by the machine that caused them, the largest first."""
    total = sum(solo_of[worker] * sum(causes.values()) for worker, causes in sums.spent_s.items()) or 1.0
    workers_on = Counter(machine_of[worker] for worker in sums.spent_s)
    own_s: dict[tuple[str, str], float] = defaultdict(float)
    waited_s: dict[tuple[str, str], float] = defaultdict(float)
    part: dict[tuple[str, str], float] = defaultdict(float)

    def book(cause: str, machine: str, *, own: float, others: float, lost: float) -> None:
        """Add seconds lost by the machine's own workers and by all others, and the samples lost in these seconds."""
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
