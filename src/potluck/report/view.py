"""A run as it stands: everything that pages, reports and comparisons show, refreshed by reading only what is new."""

from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import numpy as np
import yaml

from potluck.core.run_folder import RunFolder
from potluck.events.follow import FollowedFile
from potluck.events.runs import status_of
from potluck.events.state import RunState, after_steps, replay
from potluck.events.types import (
    Evaluated,
    MachineBenched,
    MachineUnbenched,
    MachineUsed,
    PlanChanged,
    Record,
    RunStarted,
    StepCommitted,
)
from potluck.report.account import Account, account_of
from potluck.report.history import Happening, History
from potluck.report.ledger import Floats, Ledger, step_columns
from potluck.report.links import SendingRates
from potluck.report.timeline import Timeline
from potluck.report.worker import Absence, Worker, is_gone

_LOCKSTEP: Final = 2048  # files are read side by side, so that few steps wait for their other parts


class RunView:
    """Follows a run's folder. Times are on the clock of the first worker that trained."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = {}
        self.workers: dict[str, Worker] = {}
        self.num_events = 0
        self.began_at = 0.0
        """When its first worker began."""
        self.updated_at = 0.0
        """Of the newest event."""
        self._ahead_s: dict[str, float] = {}
        self.plans: list[tuple[float, PlanChanged]] = []
        self.scores: dict[tuple[int, str], tuple[float, Evaluated]] = {}
        self.timeline = Timeline()
        self._ledger = Ledger()
        self._benched: dict[str, str] = {}
        self._links = SendingRates()
        self._history = History()

    def refresh(self) -> int:
        """Read what is new; returns how many events that was."""
        self._read_settings()
        for path in self.folder.event_files():
            if path.stem not in self.workers:
                self.workers[path.stem] = Worker(path.stem, FollowedFile(path))
        before = self.num_events
        unread = dict(self.workers)
        while unread:
            limit = min(worker.state.step for worker in unread.values()) + _LOCKSTEP
            for name, worker in list(unread.items()):
                if worker.state.step > limit:
                    continue
                records = worker.file.read()
                if not records:
                    del unread[name]
                    continue
                self._take(worker, records)
            self._ledger.fold()
        self._note_clocks()
        return self.num_events - before

    @property
    def state(self) -> RunState:
        """Of the worker that is farthest."""
        states = [worker.state for worker in self.workers.values()]
        return max(states, key=lambda state: (state.step, state.updated_at), default=RunState(run=self.folder.name))

    @property
    def samples_per_s(self) -> float:
        """Mean throughput over all committed steps, by the worker that saw most of them."""
        states = [worker.state for worker in self.workers.values()]
        return max(states, key=lambda state: state.samples_seen, default=RunState()).samples_per_s

    @property
    def status(self) -> str:
        """finished, stopped, failed, running or interrupted."""
        return status_of(self.folder, self.state)

    @property
    def machines(self) -> list[str]:
        """In the order in which they came."""
        order = sorted(
            self.workers.values(),
            key=lambda worker: (not worker.state.started_at, worker.state.started_at - self.ahead_s(worker.name)),
        )
        return list(dict.fromkeys(worker.machine for worker in order))

    def ahead_s(self, name: str) -> float:
        """By how much a worker's clock is ahead of the run's."""
        return self._ahead_s.get(name, 0.0)

    def _measure_ahead_s(self, worker: Worker) -> float:
        return worker.marks.ahead_of(next(iter(self.workers.values())).marks)

    def _note_clocks(self) -> None:
        """Once a refresh: everything that is shown asks for them."""
        self._ahead_s = {name: self._measure_ahead_s(worker) for name, worker in self.workers.items()}
        states = [(worker.state, self._ahead_s[name]) for name, worker in self.workers.items()]
        self.began_at = min((state.started_at - ahead for state, ahead in states if state.started_at), default=0.0)
        self.updated_at = max((state.updated_at - ahead for state, ahead in states), default=0.0)

    def account(self) -> Account | None:
        """Where the time went, of all whole steps so far."""
        machine_of = {name: worker.machine for name, worker in self.workers.items()}
        slowest = self._links.slowest_link()
        return account_of(self._ledger, machine_of=machine_of, benched=dict(self._benched), slowest_link=slowest)

    def series(self) -> tuple[list[str], Floats, float, Floats]:
        """Workers, starts of bins, their width, and workers x bins x timeline.COLUMNS."""
        state = self.state
        step_s = state.training_s / max(1, round(state.samples_seen / max(1, state.global_batch)))
        ahead_s = {name: self.ahead_s(name) for name in self.timeline.bins}
        starts, width_s, sums = self.timeline.together(ahead_s, least_width_s=4 * step_s)
        return list(self.timeline.bins), starts, width_s, sums

    def absences(self) -> dict[str, list[Absence]]:
        """By worker: steps that others committed without it, the one under way included."""
        newest = self.state
        farthest = max(self.workers.values(), key=lambda worker: worker.state.step, default=None)
        end = max((w.step_at - self.ahead_s(w.name) for w in self.workers.values() if w.step_at), default=0.0)
        found: dict[str, list[Absence]] = {}
        for name, worker in self.workers.items():
            ahead_s = self.ahead_s(name)
            found[name] = [
                replace(gap, since=gap.since - ahead_s, until=(gap.until or 0.0) - ahead_s) for gap in worker.absences
            ]
            since = worker.step_at - ahead_s
            is_done = worker.state.ended and worker.state.step >= newest.last_step > 0
            if worker.step_at and not is_done and is_gone(worker, farthest, end - since):
                found[name].append(
                    Absence(since=since, until=None, first_step=worker.state.step + 1, last_step=newest.step)
                )
        return found

    @property
    def regroup_s(self) -> float:
        """What machines coming and going cost those who stayed: all wait together, so the longest wait tells."""
        return max((worker.regroup_s for worker in self.workers.values()), default=0.0)

    def away(self) -> list[str]:
        """Machines of which a worker misses the newest steps."""
        return [self.workers[name].machine for name, gaps in self.absences().items() if gaps and gaps[-1].until is None]

    def happenings(self) -> list[Happening]:
        """Comings, goings, plans and notices in the order of time; the last some hundred."""
        gaps = [(self.workers[name].machine, gap) for name, gaps in self.absences().items() for gap in gaps]
        return self._history.with_absences(gaps)

    def _read_settings(self) -> None:
        try:
            found = yaml.safe_load(self.folder.settings_file.read_text())
        except (OSError, yaml.YAMLError):  # not written yet, or half
            return
        self.settings = dict(found) if isinstance(found, dict) else {}

    def _take(self, worker: Worker, records: list[Record]) -> None:
        self.num_events += len(records)
        uses = [(record.time, record.event) for record in records if isinstance(record.event, MachineUsed)]
        if uses:  # every few seconds: they must not cut steps into short groups
            ahead_s = self._measure_ahead_s(worker)
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

    def _take_steps(self, worker: Worker, records: list[Record]) -> None:
        events: list[StepCommitted] = [record.event for record in records]  # type: ignore[misc]
        numbers = np.array([event.step for event in events], dtype=np.int64)
        times = np.array([record.time for record in records])
        columns = step_columns(events)
        self._ledger.add(worker.name, numbers, columns)
        losses = np.array([np.nan if event.loss is None else event.loss for event in events])
        values = np.column_stack(
            [np.ones(len(events)), np.nan_to_num(columns[1:]).T, np.nan_to_num(losses), ~np.isnan(losses)]
        )
        self.timeline.add(worker.name, times, values)
        worker.note_steps(numbers, times, [event.formation for event in events], values)
        worker.state = after_steps(
            worker.state,
            events[-1],
            at=worker.step_at,
            samples=int(columns[0].sum()),
            seconds=float(columns[2].sum()),
            skipped=sum(event.skipped for event in events),
        )

    def _take_other(self, worker: Worker, record: Record) -> None:
        at = record.time - self._measure_ahead_s(worker)
        is_known_plan = isinstance(record.event, PlanChanged) and record.event.step in self._ledger.plans
        if not is_known_plan:  # everybody tells of a plan, and of large runs that is long
            self._history.take(at, record.event, machine=worker.machine, has_started=bool(worker.starts))
        match record.event:
            case RunStarted():
                worker.starts.append(at)
            case PlanChanged(step=step) as plan:
                if not is_known_plan and plan.replaces(self.plans[-1][1].shares if self.plans else {}):
                    self.plans.append((at, plan))
                self._ledger.plans[step] = plan
                for name in [name for name, share in plan.shares.items() if share]:
                    self._benched.pop(plan.machines.get(name, name), None)
            case MachineBenched(machine=machine, reason=reason):
                self._benched[machine] = reason
            case MachineUnbenched(machine=machine):
                self._benched.pop(machine, None)
            case Evaluated(step=step, name=name) as event:
                self.scores[step, name] = (at, event)


def _is_step(record: Record) -> bool:
    return type(record.event) is StepCommitted


def read_run(folder: RunFolder) -> RunView:
    """A run as it stands now."""
    view = RunView(folder)
    view.refresh()
    return view
