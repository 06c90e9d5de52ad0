"""One worker of a run, as its file tells: where it stands, when it was away, how busy its machine is."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from potluck.events.follow import FollowedFile
from potluck.events.state import RunState
from potluck.events.types import MachineUsed
from potluck.report.ledger import Floats
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
    """On the run's clock; None while it lasts."""
    first_step: int
    last_step: int


@dataclass(slots=True)
class Worker:
    """One worker's file, read so far."""

    name: str
    file: FollowedFile
    state: RunState = field(default_factory=RunState)
    marks: Marks = field(default_factory=Marks)
    absences: list[Absence] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    step_at: float = 0.0
    formation: int = 0
    regroup_s: float = 0.0
    """How much longer than usual the first step of each new group took."""
    recent: deque[tuple[float, Floats]] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))
    """Times and timeline.COLUMNS of the last steps."""
    used: deque[tuple[float, MachineUsed]] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))

    @property
    def machine(self) -> str:
        return self.state.machine or self.name.rpartition("-")[0] or self.name

    def note_steps(self, numbers: npt.NDArray[np.int64], times: Floats, formations: list[int], values: Floats) -> None:
        """Steps in a row, with a row of timeline.COLUMNS each. The state moves on afterwards."""
        self.marks.add(numbers, times)
        self._note_groups(formations, values[:, _SECONDS])
        self.recent.extend(zip(times[-_RECENT_STEPS:].tolist(), values[-_RECENT_STEPS:], strict=True))
        self._note_gaps(numbers, times)
        self.step_at = float(times[-1])

    def sum_of_recent(self, seconds: float) -> Floats:
        """Of the steps of the last seconds."""
        chosen = [row for at, row in self.recent if at >= self.recent[-1][0] - seconds]
        return np.asarray(np.sum(chosen, axis=0)) if chosen else np.zeros(len(COLUMNS))

    def _note_gaps(self, numbers: npt.NDArray[np.int64], times: Floats) -> None:
        if self.step_at:
            numbers = np.concatenate([[self.state.step], numbers])
            times = np.concatenate([[self.step_at], times])
        for index in np.nonzero(np.diff(numbers) > 1)[0].tolist():
            gap = Absence(
                since=float(times[index]),
                until=float(times[index + 1]),
                first_step=int(numbers[index]) + 1,
                last_step=int(numbers[index + 1]) - 1,
            )
            self.absences = [*self.absences, gap][-MOST_KEPT:]

    def _note_groups(self, formations: list[int], seconds: Floats) -> None:
        """A lost machine costs the others the attempt that it spoiled and the forming of a new group."""
        before = [row[_SECONDS] for _, row in self.recent]
        changes = np.nonzero(np.diff([self.formation or formations[0], *formations]))[0].tolist()
        self.formation = formations[-1]
        for index in changes:
            usual = [*before, *seconds[:index].tolist()][-_RECENT_STEPS:]
            if usual:
                self.regroup_s += max(0.0, float(seconds[index] - np.median(usual)))


def is_gone(worker: Worker, farthest: Worker | None, silent_s: float) -> bool:
    """Whether the others go on without it. Files of other machines come a moment later: that is not being away."""
    if farthest is None or silent_s < _AWAY_S:
        return False
    behind = farthest.state.step - worker.state.step
    return behind >= _AWAY_STEPS or (behind > 0 and farthest.formation != worker.formation)
