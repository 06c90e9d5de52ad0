"""Lines for a person at the terminal of a script, or of one machine among several: which run, progress, result."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from potluck.core.environment import Launch, is_kernel
from potluck.core.printable import printable
from potluck.core.words import duration, number
from potluck.events.progress_lines import (
    backend_lines,
    begin_line,
    epoch_line,
    group_lines,
    machine_shares,
    own_step_line,
    step_line,
)
from potluck.events.recent_speed import RecentSpeed
from potluck.events.state import RunState
from potluck.events.types import (
    BackendChosen,
    EpochEnded,
    GroupChanged,
    Notice,
    PlanChanged,
    Record,
    RunEnded,
    RunStarted,
    StepCommitted,
    TrainingBegan,
)

_LINE_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class LinePrinter:
    """Prints lines for a person: a script's on stderr, apart from its own output; a command's on stdout."""

    is_script: bool = True

    def write(self, text: str) -> bool:
        """Write whole lines; False if nobody reads them any more, and training goes on."""
        stream, prefix = (sys.stderr, "potluck: ") if self.is_script else (sys.stdout, "")
        if stream is None:
            return False
        try:
            stream.write("".join(f"{prefix}{printable(line)}\n" for line in text.splitlines()))
            stream.flush()
        except (OSError, ValueError):  # the stream is closed, or its reader has exited
            return False
        return True


_OF_SCRIPT = LinePrinter()


class ScriptTeller:
    """A Watcher that prints a few whole lines, so that the script's own prints stay readable.

    A short run gets a first and a last line; a long run also gets a progress line every few seconds.
    """

    def __init__(
        self, folder: Path, clock: Callable[[], float] = time.monotonic, printer: LinePrinter = _OF_SCRIPT
    ) -> None:
        self._folder = folder.absolute()
        self._clock = clock
        self._printer = printer
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
        self._tell(self._step_text(step, state))

    def _step_text(self, step: StepCommitted, state: RunState) -> str:
        return step_line(step, state, self._speed.samples_per_s, self._speed.step_s)

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
            self._tell(f"go on with: {self._how_to_go_on(state.run)}")
        elif state.step:
            self._tell(f"more about this run: {self._where_to_read(state.run)}")

    def _how_to_go_on(self, run: str) -> str:
        call = f'potluck.start("{run}", resume=True)'
        script = Path(sys.argv[0]).name
        return call if is_kernel() else f"potluck run --solo --resume --experiment-name {run} {script}"

    def _where_to_read(self, run: str) -> str:
        return f"potluck report {run}"

    def _tell(self, text: str) -> None:
        self._is_heard = self._is_heard and self._printer.write(text)


class MachineTeller(ScriptTeller):
    """Tells of this machine's part, on a machine other than worker 0's: worker 0 shows the whole run."""

    def __init__(self, folder: Path, machine: str, printer: LinePrinter = _OF_SCRIPT) -> None:
        super().__init__(folder, printer=printer)
        self._machine = machine
        self._share: int | None = None

    def __call__(self, record: Record, state: RunState) -> None:
        if isinstance(record.event, PlanChanged):
            self._share = machine_shares(record.event).get(self._machine)
        super().__call__(record, state)

    def _step_text(self, step: StepCommitted, state: RunState) -> str:
        share = step.own_samples if self._share is None else self._share
        return own_step_line(step, state, (self._machine, share), self._speed)

    def _how_to_go_on(self, run: str) -> str:
        return f"the same command on every machine, with --resume and --experiment-name {run}"

    def _where_to_read(self, run: str) -> str:
        return f"potluck report {run}, on the machine of worker 0"


def who_shows_what(machine: str, launch: Launch) -> str:
    """What a machine other than worker 0's says before it has met worker 0."""
    host, port = launch.master or ("", 0)
    return (
        f"{machine} is worker {launch.rank} (WORLD_SIZE={launch.expected}) and shows its own part; "
        f"worker 0, at {host}:{port}, shows the whole run"
    )
