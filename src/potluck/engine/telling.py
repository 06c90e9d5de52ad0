"""Lines on stderr for a script whose terminal a person sees: which run it is, its progress, its result."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from potluck.core.environment import is_kernel
from potluck.core.printable import printable
from potluck.core.words import duration, number
from potluck.events.progress_lines import backend_lines, begin_line, epoch_line, group_lines, step_line
from potluck.events.recent_speed import RecentSpeed
from potluck.events.state import RunState
from potluck.events.types import (
    BackendChosen,
    EpochEnded,
    GroupChanged,
    Notice,
    Record,
    RunEnded,
    RunStarted,
    StepCommitted,
    TrainingBegan,
)

_LINE_EVERY_S = 5.0


class ScriptTeller:
    """A Watcher that prints a few whole lines, so that the script's own prints stay readable.

    A short run gets a first and a last line; a long run also gets a progress line every few seconds.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder.absolute()
        self._clock = clock
        self._told_at = clock()
        self._speed = RecentSpeed(_LINE_EVERY_S)
        self._is_heard = True

    def __call__(self, record: Record, state: RunState) -> None:
        match record.event:
            case StepCommitted() as step:
                self._count(step, state)
            case RunStarted(run=run) as started:
                self._tell(f"run {run} on {started.place}, folder {self._folder}")
            case TrainingBegan() as began:
                self._told_at = self._clock()
                self._tell(begin_line(began, state))
            case EpochEnded() as ended if self._is_due():
                self._told_at = self._clock()
                self._tell(epoch_line(ended, state))
            case Notice(text=text):
                self._tell(text)
            case GroupChanged() as changed:
                self._tell("\n".join(group_lines(changed)))
            case BackendChosen() as chosen:
                self._tell("\n".join(backend_lines(chosen)))
            case RunEnded() as ended:
                self._end(ended, state)

    def _count(self, step: StepCommitted, state: RunState) -> None:
        self._speed.add(step.samples, step.seconds)
        if not self._is_due():
            return
        self._told_at = self._clock()
        self._tell(step_line(step, state, self._speed.samples_per_s, self._speed.step_s))

    def _is_due(self) -> bool:
        return self._clock() - self._told_at >= _LINE_EVERY_S

    def _end(self, ended: RunEnded, state: RunState) -> None:
        has_diverged = ended.reason == "finished" and state.diverged_since
        parts = [f"{state.run} {'diverged' if has_diverged else ended.reason}"]
        if state.last_step:
            parts[0] += f" after step {ended.step} of {state.last_step}"
        if state.training_s:
            parts.append(f"{duration(state.training_s)} of training, {state.samples_per_s:,.0f} samples/s")
        if state.epochs:
            parts.append(f"loss {number(state.epochs[-1].loss)} over epoch {state.epochs[-1].epoch + 1}")
        if state.scores:
            scores = (f"{name.replace('_', ' ')} {number(value)}" for name, value in state.scores.items())
            parts.append(", ".join(scores))
        self._tell("; ".join(parts))
        if ended.message:
            self._tell(ended.message)
        if state.checkpoint:
            self._tell(f"checkpoint {self._folder / 'checkpoints' / state.checkpoint}")
        if ended.reason != "finished" and state.checkpoint:
            script = Path(sys.argv[0]).name
            command = f"potluck run --solo --resume --experiment-name {state.run} {script}"
            call = f'potluck.start("{state.run}", resume=True)'
            self._tell(f"go on with: {call if is_kernel() else command}")
        elif state.step:
            self._tell(f"more about this run: potluck report {state.run}")

    def _tell(self, text: str) -> None:
        if not self._is_heard or sys.stderr is None:
            return
        try:
            sys.stderr.write("".join(f"potluck: {printable(line)}\n" for line in text.splitlines()))
            sys.stderr.flush()
        except (OSError, ValueError):  # stderr is closed, or its reader has exited: training goes on
            self._is_heard = False
