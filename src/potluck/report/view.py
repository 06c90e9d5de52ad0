"""The current view of a run, for pages, reports and comparisons; a refresh reads only new events."""

from dataclasses import replace
from typing import Any, Final

from potluck.core.errors import SettingsError
from potluck.core.printable import printable_data
from potluck.core.run_end import RunEnd, read_end
from potluck.core.run_folder import RunFolder
from potluck.core.run_variables import show_settings
from potluck.core.yaml_file import read_yaml
from potluck.events.alive import status_of
from potluck.events.follow import FollowedFile
from potluck.events.state import RunState
from potluck.planning.replanning.announcements import MOST_PLAN_WRITERS
from potluck.report.account import Account
from potluck.report.attendance import Attendance
from potluck.report.history import Happening
from potluck.report.ledger import Floats
from potluck.report.merge import Merge
from potluck.report.plain_account import PlainAccount
from potluck.report.worker import WorkerEvents

_LOCKSTEP: Final = 2048  # steps that one file is read ahead of the others, so that few steps wait for other workers


class RunView:
    """Follows a run's folder. Times are on the run's clock, which is that of the worker whose file was found first."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = {}
        """The content of run.yaml, without secret values of variables."""
        self.end: RunEnd | None = None
        """How a plain run ended, if its host has written it."""
        self.merge = Merge()
        self.began_at = 0.0
        """When the run's first worker started."""
        self.updated_at = 0.0
        """The time of the newest event."""
        self._files: dict[str, FollowedFile] = {}
        self._ahead_s: dict[str, float] = {}
        self.attendance = self._take_attendance()

    def refresh(self) -> int:
        """Read new events, and return how many there were."""
        self._read_settings()
        self.end = read_end(self.folder) if self.is_plain else None
        for path in self.folder.event_files():
            self.merge.add_worker(path.stem)
            self._files.setdefault(path.stem, FollowedFile(path))
        before = self.merge.num_events
        unread = dict(self._files)
        workers = self.merge.workers
        while unread:
            limit = min(workers[name].state.step for name in unread) + _LOCKSTEP
            for name, file in list(unread.items()):
                if workers[name].state.step > limit:
                    continue
                records = file.read()
                if not records:
                    del unread[name]
                    continue
                self.merge.take(name, records)
            self.merge.fold()
        self._note_clocks()
        self.attendance = self._take_attendance()
        return self.merge.num_events - before

    def _take_attendance(self) -> Attendance:
        workers = self.merge.workers
        states = [worker.state for worker in workers.values()]
        newest = max(states, key=lambda state: state.updated_at, default=RunState())
        is_running = bool(workers) and status_of(self.folder, newest) == "running"
        return Attendance(workers, self._ahead_s, self.merge.benchings, is_running=is_running)

    @property
    def farthest(self) -> WorkerEvents | None:
        """The worker with the highest committed step; steps that a resumed run has to do again do not count."""
        return self.attendance.farthest

    @property
    def state(self) -> RunState:
        """The state of the farthest worker."""
        farthest, merge = self.farthest, self.merge
        if farthest is None:
            return RunState(run=self.folder.name)
        if len(merge.workers) <= MOST_PLAN_WRITERS or merge.newest_plan is None:
            return farthest.state
        return replace(  # it may be none of those that write plans
            farthest.state,
            shares=merge.newest_plan.shares,
            predicted_samples_per_s=merge.newest_plan.samples_per_s,
            num_plan_changes=max(0, len(merge.plans) - 1),
            benched=tuple(merge.benched),
        )

    @property
    def status(self) -> str:
        """finished, diverged, stopped, failed, running or interrupted."""
        if self.is_plain:  # no worker of a plain run is farther than another: the first failure counts
            ended = self.plain_account().ended if self.end is None else self.end.state
            return status_of(self.folder, replace(self.state, ended=ended))
        return status_of(self.folder, self.state)

    @property
    def is_simulated(self) -> bool:
        """Whether nothing was trained: potluck simulate has computed the run."""
        return self.settings.get("simulated") is True

    @property
    def shown_status(self) -> str:
        """The status for people, who must see that a run is simulated."""
        return f"{self.status}, simulated" if self.is_simulated else self.status

    @property
    def is_plain(self) -> bool:
        """Whether the run's script does not use Potluck."""
        return self.settings.get("plain") is True

    def plain_account(self) -> PlainAccount:
        """The account of a plain run, from outside."""
        return PlainAccount.of(worker.state for worker in self.merge.workers.values())

    @property
    def plain_cause(self) -> str:
        """What ended a plain run before its time: by its host, else by the machines' own events; empty if nothing."""
        if self.end is not None:
            return self.end.cause
        account = self.plain_account()
        return account.cause or (account.lost if self.status == "interrupted" else "")

    @property
    def machines(self) -> list[str]:
        """The run's machines, in the order of their first start."""
        order = sorted(
            self.merge.workers.values(),
            key=lambda worker: (not worker.state.started_at, worker.state.started_at - self.ahead_s(worker.name)),
        )
        return list(dict.fromkeys(worker.machine for worker in order))

    def ahead_s(self, name: str) -> float:
        """Seconds by which a worker's clock is ahead of the run's clock."""
        return self._ahead_s.get(name, 0.0)

    def _note_clocks(self) -> None:
        """Compare the workers' clocks once a refresh, since every table and plot needs the differences."""
        self._ahead_s = {name: self.merge.ahead_s(name) for name in self.merge.workers}
        states = [(worker.state, self._ahead_s[name]) for name, worker in self.merge.workers.items()]
        self.began_at = min((state.started_at - ahead for state, ahead in states if state.started_at), default=0.0)
        self.updated_at = max((state.updated_at - ahead for state, ahead in states), default=0.0)

    def account(self) -> Account | None:
        """The account of all whole steps so far; None if no step is whole."""
        return self.merge.account()

    def series(self) -> tuple[list[str], Floats, float, Floats]:
        """Names of workers, starts of time bins, their width, and workers x bins x timeline.COLUMNS."""
        state, timeline = self.state, self.merge.timeline
        step_s = state.training_s / max(1, round(state.samples_seen / max(1, state.global_batch)))
        ahead_s = {name: self.ahead_s(name) for name in timeline.bins}
        starts, width_s, sums = timeline.together(ahead_s, least_width_s=4 * step_s)
        return list(timeline.bins), starts, width_s, sums

    def away(self) -> list[str]:
        """Machines with a worker that misses the newest steps, without benched machines."""
        return [machine for machine in self.attendance.gone() if machine not in self.merge.benched]

    def happenings(self) -> list[Happening]:
        """Joins, absences, pauses, plans and notices in the order of time; the last few hundred."""
        return self.merge.history.with_absences(self.attendance.gaps(), self.attendance.pauses)

    def _read_settings(self) -> None:
        try:
            found = read_yaml(self.folder.settings_file)
        except SettingsError:  # run.yaml is not written yet, or only half
            return
        self.settings = show_settings(printable_data(found)) if isinstance(found, dict) else {}


def read_run(folder: RunFolder) -> RunView:
    """A run as it stands now."""
    view = RunView(folder)
    view.refresh()
    return view
