"""One worker of a run, from its event file: its state, the steps it committed or missed, the load of its machine."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from potluck.events.state import RunState
from potluck.events.types import MachineUsed, StepsTraced
from potluck.report.ledger import Floats
from potluck.report.load import MachineLoad
from potluck.report.presence import Period, Span, Stretch, num_steps, steps_of, without
from potluck.report.timeline import COLUMNS, Marks

MOST_KEPT: Final = 500
_AWAY_S: Final = 1.0
_AWAY_STEPS: Final = 3
_RECENT_STEPS: Final = 64
_SECONDS: Final = COLUMNS.index("seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A stretch of steps that were committed without a worker."""

    since: float
    until: float | None
    """On the run's clock; None while the absence lasts."""
    first_step: int
    last_step: int
    num_steps: int


@dataclass(slots=True)
class WorkerEvents:
    """The events of one worker so far, summed up."""

    name: str
    state: RunState = field(default_factory=RunState)
    marks: Marks = field(default_factory=Marks)
    stretches: list[Stretch] = field(default_factory=list)
    """The steps that the worker committed, on its own clock, in the order of its file."""
    sessions: list[Period] = field(default_factory=list)
    """The times of the first and last event of each of the worker's processes, on the worker's clock."""
    is_fresh: bool = True
    """True until the worker's current process has committed a step."""
    step_at: float = 0.0
    quorum_id: int = 0
    regrouped_at: int = 0
    """The first step after the newest change of the group."""
    regroup_s: float = 0.0
    """Seconds lost to changes of the group: for each change, its stall beyond the duration of a usual step."""
    recent: deque[tuple[float, Floats]] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))
    """Times and timeline.COLUMNS of the last steps."""
    used: deque[tuple[float, MachineUsed]] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))
    load: MachineLoad = field(default_factory=MachineLoad)
    traced: list[StepsTraced] = field(default_factory=list)

    @property
    def machine(self) -> str:
        return self.state.machine or self.name.rpartition("-")[0] or self.name

    def note_start(self, at: float) -> None:
        """A new process of this worker has started."""
        self.sessions.append((at, at))
        self.is_fresh = True

    def note_time(self, at: float) -> None:
        """The current process has written an event: its session lasts at least until `at`."""
        begin, end = self.sessions.pop() if self.sessions else (at, at)
        self.sessions.append((begin, max(end, at)))

    def note_steps(self, numbers: npt.NDArray[np.int64], times: Floats, quorum_id: int, values: Floats) -> None:
        """Add StepCommitted events, with a row of timeline.COLUMNS each. The caller updates `state` afterwards."""
        self.marks.add(numbers, times)
        self.quorum_id = quorum_id
        self.recent.extend(zip(times[-_RECENT_STEPS:].tolist(), values[-_RECENT_STEPS:], strict=True))
        self._note_stretches(numbers, times)
        self.step_at = float(times[-1])
        self.note_time(self.step_at)

    def sum_of_recent(self, seconds: float) -> Floats:
        """The sum of timeline.COLUMNS over the steps of the last seconds."""
        chosen = [row for at, row in self.recent if at >= self.recent[-1][0] - seconds]
        return np.asarray(np.sum(chosen, axis=0)) if chosen else np.zeros(len(COLUMNS))

    def _note_stretches(self, numbers: npt.NDArray[np.int64], times: Floats) -> None:
        borders = [0, *(np.nonzero(np.diff(numbers) != 1)[0] + 1).tolist(), len(numbers)]
        for begin, end in pairwise(borders):
            first_step, since = int(numbers[begin]), float(times[begin])
            if not self.is_fresh and self.stretches and self.stretches[-1].last_step == first_step - 1:
                before = self.stretches.pop()
                first_step, since = before.first_step, before.since
            self.is_fresh = False
            last_step, until = int(numbers[end - 1]), float(times[end - 1])
            self.stretches.append(Stretch(first_step=first_step, last_step=last_step, since=since, until=until))

    def note_group_change(self, step: int, stall_s: float) -> None:
        """Add the cost of a change of the group: the stall, minus the median duration of recent steps."""
        is_known = step == self.regrouped_at  # older files have a line for each machine of the same change
        self.regrouped_at = step
        if self.recent and not is_known:
            usual_s = float(np.median([row[_SECONDS] for _, row in self.recent]))
            self.regroup_s += max(0.0, stall_s - usual_s)


def absences_between(pieces: Sequence[Stretch], done: Sequence[Span]) -> list[Absence]:
    """The steps of `done` that a worker missed between two of its stretches, on the clock of the stretches."""
    found = []
    own = steps_of(pieces)
    for before, after in pairwise(pieces):
        missed = without(_within(done, before.last_step + 1, after.first_step - 1), own)
        if missed:
            found.append(
                Absence(
                    since=before.until,
                    until=after.since,
                    first_step=missed[0][0],
                    last_step=missed[-1][1],
                    num_steps=num_steps(missed),
                )
            )
    return found[-MOST_KEPT:]


def _within(spans: Sequence[Span], first: int, last: int) -> list[Span]:
    return [(max(begin, first), min(end, last)) for begin, end in spans if begin <= last and end >= first]


def is_gone(worker: WorkerEvents, farthest: WorkerEvents | None, behind: int, silent_s: float) -> bool:
    """Whether the others train without the worker. A short silence is not enough: remote events come late."""
    if farthest is None or silent_s < _AWAY_S:
        return False
    return behind >= _AWAY_STEPS or (behind > 0 and farthest.quorum_id != worker.quorum_id)
