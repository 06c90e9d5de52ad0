"""Writes the events of a simulated run into its folder: a file for each worker, or for each kind of machine.

A run of thousands of machines would write thousands of files with millions of lines. Beyond MOST_FILES workers those of
one kind are written as one: its samples are theirs added up, its times are their means.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from potluck.core.run_folder import RunFolder
from potluck.core.version import __version__
from potluck.events.log import EventLog
from potluck.events.types import (
    AnyEvent,
    GroupChanged,
    MachineBenched,
    MachineUnbenched,
    Notice,
    PlanChanged,
    RunEnded,
    RunStarted,
    StepCommitted,
    StepTiming,
    TrainingBegan,
)
from potluck.planning.cluster import Cluster
from potluck.planning.replanning.announcements import is_written_by, plan_writers
from potluck.planning.water_filling import Numbers
from potluck.simulate.group_costs import COMMIT_S

MOST_FILES = 64


class FileRow(NamedTuple):
    """One event file: some workers of the cluster, by their places."""

    machine: str
    number: int
    kind: str
    places: Numbers

    @property
    def name(self) -> str:
        return f"{self.machine}-{self.number}"


def rows_of(cluster: Cluster, kinds: Mapping[str, str], most: int = MOST_FILES) -> list[FileRow]:
    """The files of a run: one for each worker where they are few, else one for each kind or slice of the machines."""
    workers = cluster.workers
    if len(workers) <= most:
        numbers: dict[str, int] = {}
        rows = []
        for place, worker in enumerate(workers):
            number = numbers[worker.machine] = numbers.get(worker.machine, -1) + 1
            rows.append(FileRow(worker.machine, number, kinds.get(worker.machine, "cpu"), np.array([place])))
        return rows
    grouped: dict[str, list[int]] = {}
    for place, worker in enumerate(workers):
        grouped.setdefault(kinds.get(worker.machine, "machines"), []).append(place)
    pieces = max(1, most // len(grouped)) if len(grouped) > most or len(grouped) == 1 else 1
    if len(grouped) > most:
        grouped, pieces = {"machines": list(range(len(workers)))}, most
    rows = []
    for kind, places in grouped.items():
        for number, part in enumerate(np.array_split(np.array(places), min(pieces, len(places)))):
            label = "".join(letter if letter.isalnum() else "-" for letter in kind).strip("-")
            more = f"-{number + 1}" if pieces > 1 else ""
            rows.append(FileRow(f"{len(part)}x-{label}{more}", 0, kind, part))
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """One committed step, or round, of all workers; arrays are by worker of the whole cluster."""

    number: int
    samples: int
    seconds: float
    retry_s: float
    shares: Numbers
    work_s: Numbers
    quorum_id: int


class RunWriter:
    """The event files of one run; the run's clock starts at `began_at` and goes by the simulation's seconds."""

    def __init__(self, folder: RunFolder, cluster: Cluster, rows: Sequence[FileRow], began_at: float) -> None:
        self.rows = rows
        self._began_at = began_at
        self._workers = cluster.workers
        self._logs = [EventLog(folder.event_file(row.machine, row.number)) for row in rows]
        self._is_each = all(len(row.places) == 1 for row in rows)
        self._row_of = np.zeros(len(cluster.workers), dtype=np.int64)
        for index, row in enumerate(rows):
            self._row_of[row.places] = index

    @property
    def is_summed(self) -> bool:
        """Whether a file stands for several workers."""
        return not self._is_each

    def begin(self, run: str, began: TrainingBegan) -> None:
        """Write what every worker writes before its first step."""
        for row, log in zip(self.rows, self._logs, strict=True):
            log.append(
                RunStarted(
                    run=run,
                    machine=row.machine,
                    worker=row.number,
                    process_id=os.getpid(),
                    device="simulated",
                    mixed_precision="no",
                    versions={"potluck": __version__},
                    card=row.kind,
                ),
                at=self._began_at,
            )
            log.append(began, at=self._began_at)

    def step(self, step: SimulatedStep, at_s: float) -> None:
        """Write a committed step in the files of all workers that had a part in it."""
        size = len(self.rows)
        own = np.bincount(self._row_of, weights=step.shares, minlength=size)
        takers = np.bincount(self._row_of, weights=step.shares > 0, minlength=size)
        work_s = np.bincount(self._row_of, weights=step.work_s * (step.shares > 0), minlength=size)
        for row in np.flatnonzero(takers).tolist():
            mean_s = float(work_s[row] / takers[row])
            wait_s = max(0.0, step.seconds - step.retry_s - mean_s)
            timing = StepTiming(
                compute_s=max(0.0, mean_s - COMMIT_S),
                commit_s=min(COMMIT_S, mean_s),
                exchange_wait_s=wait_s,
                retry_s=step.retry_s,
            )
            self._logs[row].append(
                StepCommitted(
                    step=step.number,
                    epoch=0,
                    samples=step.samples,
                    loss=None,
                    seconds=step.seconds,
                    own_samples=int(own[row]),
                    quorum_id=step.quorum_id,
                    timing=timing,
                ),
                at=self._began_at + at_s,
            )

    def tell(self, events: Sequence[AnyEvent], at_s: float, present: Numbers | None = None) -> None:
        """Write events that every present worker knows, in the files of those that write them."""
        rows = range(len(self.rows)) if present is None else np.unique(self._row_of[present]).tolist()
        writers = plan_writers(self.rows[row].machine for row in rows)
        for event in events:
            shown = self._summed(event) if self.is_summed else event
            if shown is not None:
                for row in rows:
                    if is_written_by(self.rows[row].machine, shown, writers):
                        self._logs[row].append(shown, at=self._began_at + at_s)

    def _summed(self, event: AnyEvent) -> AnyEvent | None:
        """The event in a run whose files stand for several machines; None if it is about a single one of them."""
        match event:
            case PlanChanged() as plan:
                return self._summed_plan(plan)
            case GroupChanged() as change:
                return GroupChanged(
                    step=change.step,
                    num_machines=change.num_machines,
                    reason=change.reason,
                    stall_s=change.stall_s,
                    quorum_id=change.quorum_id,
                )
            case MachineBenched() | MachineUnbenched():
                return None
        return event

    def _summed_plan(self, plan: PlanChanged) -> PlanChanged:
        names = [row.name for row in self.rows]
        shares, solo = dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
        for place, worker in enumerate(self._workers):
            name = names[self._row_of[place]]
            shares[name] += plan.shares.get(worker.name, 0)
            solo[name] += plan.solo_samples_per_s.get(worker.name, 0.0) if plan.shares.get(worker.name) else 0.0
        return PlanChanged(
            step=plan.step,
            policy=plan.policy,
            shares=shares,
            reason=plan.reason,
            step_s=plan.step_s,
            samples_per_s=plan.samples_per_s,
            error=plan.error,
            solo_samples_per_s=solo,
            machines={row.name: row.machine for row in self.rows},
        )

    def end(self, step: int, at_s: float, note: str) -> None:
        """Write the last events and close all files."""
        for log in self._logs:
            if note:
                log.append(Notice(text=note), at=self._began_at + at_s)
            log.append(RunEnded(reason="finished", step=step), at=self._began_at + at_s)
            log.finish()
            log.close()
