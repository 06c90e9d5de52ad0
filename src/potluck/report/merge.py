"""Merges the events of all workers of a run: views, accounts, histories and displays are made from the result."""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

import numpy as np

from potluck.events.state import RunState, after_steps, replay
from potluck.events.types import (
    Evaluated,
    GroupChanged,
    MachineBenched,
    MachineUnbenched,
    MachineUsed,
    PlanChanged,
    Record,
    RunStarted,
    StepCommitted,
    StepsTraced,
)
from potluck.report.account import Account, account_of
from potluck.report.history import History
from potluck.report.ledger import MOST_PENDING, Ledger, step_columns
from potluck.report.links import SendingRates
from potluck.report.same_event import key_of
from potluck.report.timeline import Timeline
from potluck.report.worker import WorkerEvents

Value = TypeVar("Value")


class Merge:
    """Takes each worker's events in their order. Times are on the clock of the worker that was added first."""

    def __init__(self, *, first_step: int = 1, most_pending: int | None = MOST_PENDING) -> None:
        self.workers: dict[str, WorkerEvents] = {}
        self.num_events = 0
        self.plans: list[tuple[float, PlanChanged]] = []
        """The plans that changed the split, with their times, in the order of time."""
        self._newest_plan: tuple[float, PlanChanged | None] = (float("-inf"), None)
        self.scores: dict[tuple[int, str], tuple[float, Evaluated]] = {}
        self.timeline = Timeline()
        self.history = History()
        self.benchings: dict[tuple[str, int], bool] = {}
        """By machine and step: True where the machine was benched, False where it was unbenched."""
        self._benched: dict[str, tuple[float, str]] = {}
        """By machine: the time and reason of its last bench; an empty reason if the machine takes samples again."""
        self._moves: dict[str, tuple[float, bool]] = {}
        """By machine: when it last joined or left the group, and whether it left."""
        self._told: set[object] = set()
        self._ledger = Ledger(first_step=first_step, most_pending=most_pending)
        self._links = SendingRates()

    def add_worker(self, name: str) -> WorkerEvents:
        """The worker of that name, added if it is new."""
        return self.workers.setdefault(name, WorkerEvents(name))

    def take(self, name: str, records: Sequence[Record]) -> None:
        """Add the next events of one worker."""
        worker = self.add_worker(name)
        self.num_events += len(records)
        uses = [(record.time, record.event) for record in records if isinstance(record.event, MachineUsed)]
        if uses:  # they come every few seconds, and must not cut steps into short groups
            ahead_s = self.ahead_s(name)
            worker.used.extend((at - ahead_s, used) for at, used in uses)
            records = [record for record in records if type(record.event) is not MachineUsed]
            worker.state = replace(worker.state, updated_at=uses[-1][0])
        for is_step, group in groupby(records, key=_is_step):
            alike = list(group)
            if is_step:
                self._take_steps(worker, alike)
            else:
                for record in alike:
                    self._take_other(worker, record)
                worker.state = replay(alike, worker.state)
        for _, used in uses:  # now the worker's machine is known
            self._links.add(worker.machine, used)
            worker.load.add(used)

    def fold(self) -> None:
        """Turn steps into sums once the events of all their workers have arrived."""
        self._ledger.fold()

    def ahead_s(self, name: str) -> float:
        """Seconds by which a worker's clock is ahead of the first worker's."""
        return self.workers[name].marks.ahead_of(next(iter(self.workers.values())).marks)

    @property
    def benched(self) -> dict[str, str]:
        """Machines that are benched now, and why."""
        return {machine: why for machine, (_, why) in self._benched.items() if why}

    @property
    def newest_plan(self) -> PlanChanged | None:
        """The plan of now; in large groups only some workers write plans."""
        return self._newest_plan[1]

    @property
    def left(self) -> frozenset[str]:
        """Machines that have left the group and not joined it again."""
        return frozenset(machine for machine, (_, has_left) in self._moves.items() if has_left)

    @property
    def samples_per_s(self) -> float:
        """Mean throughput over all committed steps, from the worker that saw the most samples."""
        states = [worker.state for worker in self.workers.values()]
        return max(states, key=lambda state: state.samples_seen, default=RunState()).samples_per_s

    @property
    def regroup_s(self) -> float:
        """Seconds that workers lost when machines joined or left: all wait together, so the largest sum counts."""
        return max((worker.regroup_s for worker in self.workers.values()), default=0.0)

    def account(self) -> Account | None:
        """The account of all whole steps so far; None if no step is whole."""
        machine_of = {name: worker.machine for name, worker in self.workers.items()}
        slowest = self._links.slowest_link()
        return account_of(self._ledger, machine_of=machine_of, benched=self.benched, slowest_link=slowest)

    def _take_steps(self, worker: WorkerEvents, records: list[Record]) -> None:
        events: list[StepCommitted] = [record.event for record in records]  # type: ignore[misc]
        numbers = np.array([event.step for event in events], dtype=np.int64)
        times = np.array([record.time for record in records])
        columns = step_columns(events)
        self._ledger.add(worker.name, numbers, columns)
        losses = np.array([np.nan if event.loss is None else event.loss for event in events])
        values = np.column_stack(
            [np.ones(len(events)), np.nan_to_num(columns).T, np.nan_to_num(losses), ~np.isnan(losses)]
        )
        self.timeline.add(worker.name, times, values)
        worker.note_steps(numbers, times, events[-1].quorum_id, values)
        worker.state = after_steps(
            worker.state,
            events[-1],
            lowest_step=int(numbers.min()),
            at=worker.step_at,
            samples=int(columns[0].sum()),
            seconds=float(columns[2].sum()),
            skipped=sum(event.skipped for event in events),
        )

    def _take_other(self, worker: WorkerEvents, record: Record) -> None:
        at = record.time - self.ahead_s(worker.name)
        is_new = self._is_new(record)
        if is_new:
            self.history.take(at, record.event, machine=worker.machine, has_started=bool(worker.sessions))
        if isinstance(record.event, RunStarted):
            worker.note_start(record.time)
        worker.note_time(record.time)
        match record.event:
            case PlanChanged(step=step) as plan:
                index = bisect(self.plans, at, key=itemgetter(0))  # files of other workers may be read later
                if is_new and plan.replaces(self.plans[index - 1][1].shares if index else {}):
                    self.plans.insert(index, (at, plan))
                self._ledger.plans[step] = plan
                self._newest_plan = max(self._newest_plan, (at, plan), key=itemgetter(0))
                for name in [name for name, share in plan.shares.items() if share]:
                    _keep_newest(self._benched, plan.machines.get(name, name), at, "")
            case MachineBenched(machine=machine, reason=reason, step=step):
                _keep_newest(self._benched, machine, at, reason)
                self.benchings[machine, step] = True
            case MachineUnbenched(machine=machine, step=step):
                _keep_newest(self._benched, machine, at, "")
                self.benchings[machine, step] = False
            case GroupChanged(step=step, stall_s=stall_s) as change:
                worker.note_group_change(step, stall_s)
                gone = {machine: True for machine, workers in change.left.items() if not workers}
                for machine, has_left in {**gone, **dict.fromkeys(change.joined, False)}.items():
                    _keep_newest(self._moves, machine, at, has_left)
            case StepsTraced() as traced:
                worker.traced.append(traced)
            case Evaluated(step=step, name=name) as event:
                self.scores[step, name] = (at, event)

    def _is_new(self, record: Record) -> bool:
        """Whether no worker has written an event about the same fact before; a RunStarted event is always new."""
        key = key_of(record.event)
        is_new = key not in self._told or isinstance(record.event, RunStarted)
        self._told.add(key)
        return is_new


def _keep_newest(kept: dict[str, tuple[float, Value]], machine: str, at: float, value: Value) -> None:
    """Note what is true of a machine since `at`, unless something newer is noted: files may be read later."""
    if at >= kept.get(machine, (at, value))[0]:
        kept[machine] = (at, value)


def _is_step(record: Record) -> bool:
    return type(record.event) is StepCommitted
