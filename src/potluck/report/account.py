"""The account of a run: achieved against the sum of solo speeds, and where every lost second went.

In a run of W seconds worker i could have done solo_i * W samples alone. What it did not do it lost, second by second:
each second of waiting costs solo_i samples, and a second of work costs solo_i less what was done in it. So the losses,
as parts of all that could have been done, and the efficiency add up to 1.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from potluck.core.run_folder import RunFolder
from potluck.events.log import read_records
from potluck.events.types import MachineBenched, PlanChanged, Record, RunStarted, StepCommitted, StepTiming

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


@dataclass(slots=True)
class _Told:
    """What one worker's file says."""

    machine: str = ""
    steps: dict[int, StepCommitted] = field(default_factory=dict)
    plans: dict[int, PlanChanged] = field(default_factory=dict)
    benched: dict[str, str] = field(default_factory=dict)


def make_account(records: Mapping[str, Iterable[Record]], first_step: int = 1) -> Account | None:
    """The account of the steps from `first_step` on, from every worker's records by its name; None if none is timed.

    Only steps with a timing of each worker that took part in them count: the wait for others needs all of them.
    """
    told = {worker: _read(worker, lines) for worker, lines in records.items()}
    plans = {step: plan for worker in told.values() for step, plan in sorted(worker.plans.items())}
    steps = _whole_steps(told, first_step)
    if not steps:
        return None
    tally = _Tally()
    for step in sorted(steps):
        tally.add(steps[step], _in_force(plans, step))
    return tally.account(
        machine_of={worker: lines.machine for worker, lines in told.items()},
        num_plan_changes=max(0, len(plans) - 1),
        benched={machine: why for worker in told.values() for machine, why in worker.benched.items()},
    )


def read_account(folder: RunFolder, first_step: int = 1) -> Account | None:
    """The account of a run from its folder."""
    return make_account({file.stem: read_records(file) for file in folder.event_files()}, first_step)


class _Tally:
    """Sums over steps."""

    def __init__(self) -> None:
        self._num_steps = 0
        self._wall_s = self._accounted_s = self._samples = self._predicted_s = self._doubt_s = 0.0
        self._is_predicted = True
        self._lost_s: dict[tuple[str, str], float] = defaultdict(float)
        self._lost: dict[tuple[str, str], float] = defaultdict(float)
        self._could: dict[str, float] = defaultdict(float)
        self._slowest_link = ""

    def add(self, workers: Mapping[str, StepCommitted], plan: PlanChanged | None) -> None:
        """One step of all its workers."""
        timings = {name: event.timing for name, event in workers.items() if event.timing is not None}
        wire_s = min(timing.exchange_wait_s for timing in timings.values())
        seconds = sum(event.seconds for event in workers.values()) / len(workers)
        self._num_steps += 1
        self._wall_s += seconds
        self._accounted_s += sum(timing.step_s for timing in timings.values()) / len(timings)
        self._samples += next(iter(workers.values())).samples
        if plan is None:
            self._is_predicted = False
        else:
            self._predicted_s += plan.step_s
            self._doubt_s += plan.step_s * plan.error
            self._slowest_link = plan.slowest_link or self._slowest_link
        for name, timing in timings.items():
            solo = 0.0 if plan is None else plan.solo_samples_per_s.get(name, 0.0)
            self._could[name] += solo * timing.step_s
            for cause, lost_s in _waits(timing, wire_s).items():
                self._lost_s[name, cause] += lost_s
                self._lost[name, cause] += lost_s * solo
            worked = workers[name].own_samples
            self._lost[name, "pace"] += timing.compute_s * solo - worked
            self._lost_s[name, "pace"] += timing.compute_s - worked / solo if solo else 0.0

    def account(self, *, machine_of: Mapping[str, str], num_plan_changes: int, benched: dict[str, str]) -> Account:
        """The sums as an account."""
        total = sum(self._could.values())
        is_known = self._is_predicted and all(self._could.values())
        solo: dict[str, float] = defaultdict(float)
        workers_on: dict[str, int] = defaultdict(int)
        for worker, could in self._could.items():
            solo[machine_of[worker]] += could / self._accounted_s
            workers_on[machine_of[worker]] += 1
        lost_s: dict[tuple[str, str], float] = defaultdict(float)
        part: dict[tuple[str, str], float] = defaultdict(float)
        for (worker, cause), seconds in self._lost_s.items():
            machine = machine_of[worker]
            lost_s[cause, machine] += seconds / workers_on[machine]
            part[cause, machine] += self._lost[worker, cause] / total if total else 0.0
        losses = [
            Loss(cause=cause, machine=machine, seconds=seconds, part=part[cause, machine])
            for (cause, machine), seconds in lost_s.items()
            if seconds
        ]
        return Account(
            num_steps=self._num_steps,
            wall_s=self._wall_s,
            accounted_s=self._accounted_s,
            samples_per_s=self._samples / self._wall_s,
            predicted_samples_per_s=self._samples / self._predicted_s if self._is_predicted else None,
            predicted_error=self._doubt_s / self._predicted_s if self._is_predicted else None,
            solo_samples_per_s=dict(solo) if is_known else {},
            losses=tuple(sorted(losses, key=lambda loss: (-loss.part, -loss.seconds))),
            num_plan_changes=num_plan_changes,
            benched=benched,
            slowest_link=self._slowest_link,
        )


def _waits(timing: StepTiming, wire_s: float) -> dict[str, float]:
    """All of a step that is not work, by cause: who waited least for the exchange waited for the wire only."""
    return {
        "straggler_wait": timing.exchange_wait_s - wire_s,
        "exposed_exchange": wire_s,
        "data_wait": timing.data_wait_s,
        "commit": timing.commit_s,
        "rest": timing.rest_s,
        "retry": timing.retry_s,
    }


def _read(worker: str, records: Iterable[Record]) -> _Told:
    told = _Told(machine=worker)
    for record in records:
        match record.event:
            case RunStarted(machine=machine):
                told.machine = machine
            case StepCommitted(step=step) as event:
                told.steps[step] = event  # a step that a resume repeated counts as it was done last
            case PlanChanged(step=step) as event:
                told.plans[step] = event
            case MachineBenched(machine=machine, reason=reason):
                told.benched[machine] = reason
    return told


def _whole_steps(told: Mapping[str, _Told], first_step: int) -> dict[int, dict[str, StepCommitted]]:
    """Timed steps whose workers' parts add up to the global batch: nobody's file is missing."""
    steps: dict[int, dict[str, StepCommitted]] = defaultdict(dict)
    for worker, lines in told.items():
        for step, event in lines.steps.items():
            if step >= first_step and event.own_samples > 0:
                steps[step][worker] = event
    return {
        step: workers
        for step, workers in steps.items()
        if all(event.timing is not None for event in workers.values())
        and sum(event.own_samples for event in workers.values()) == next(iter(workers.values())).samples
    }


def _in_force(plans: Mapping[int, PlanChanged], step: int) -> PlanChanged | None:
    """The newest plan of those made for this step or an earlier one."""
    made = [first for first in plans if first <= step]
    return plans[max(made)] if made else None
