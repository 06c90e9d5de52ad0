"""What a person sees while a run trains: a live bar on a terminal, a line a second elsewhere, a summary at the end."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from potluck.core.environment import read_environment
from potluck.events.state import RunState
from potluck.events.types import EpochEnded, Notice, Record, RunStarted, StepCommitted, TrainingBegan
from potluck.report.words import duration, number, scores_text

if TYPE_CHECKING:
    from potluck.report.account import Account

_WINDOW_S = 5.0
_LINE_EVERY_S = 1.0
_MOST_LOSSES = 6


class _Console(Console):
    """A console whose reader may leave: training goes on without it."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class TrainingDisplay:
    """Follows a run's events. One object for both kinds of output."""

    def __init__(self, console: Console) -> None:
        self.state = RunState()
        self._console = console
        self._speed = _Speed()
        self._printed_at = 0.0
        self._progress: Progress | None = None
        if console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("step {task.completed:.0f}/{task.total:.0f}  {task.fields[numbers]}"),
                TimeRemainingColumn(compact=True),
                console=console,
                refresh_per_second=4,
                speed_estimate_period=_WINDOW_S,
            )
        self._task = (
            None if self._progress is None else self._progress.add_task("starting", total=1, visible=False, numbers="")
        )

    def __call__(self, record: Record, state: RunState) -> None:
        self.state = state
        match record.event:
            case RunStarted(run=run, device=device):
                self._line(f"run {run} on {device}")
            case TrainingBegan() as began:
                self._begin(began, state)
            case StepCommitted() as step:
                self._step(step, state)
            case EpochEnded() as ended:
                self._epoch(ended, state)
            case Notice(text=text):
                self._line(text)

    def say(self, text: str) -> None:
        """A line beside the events."""
        self._line(text)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _begin(self, began: TrainingBegan, state: RunState) -> None:
        self._line(
            f"{state.num_parameters:,} parameters, {began.num_samples:,} samples, global batch {began.global_batch}, "
            f"{began.last_step} steps in {began.num_epochs} epochs"
        )
        if self._progress is not None and self._task is not None and state.step < began.last_step:
            self._progress.update(self._task, total=began.last_step, completed=state.step, visible=True)
            self._progress.start()

    def _step(self, step: StepCommitted, state: RunState) -> None:
        self._speed.add(step.samples, step.seconds)
        now = time.monotonic()
        if self._progress is None and now - self._printed_at < _LINE_EVERY_S:
            return
        self._printed_at = now
        where = f"epoch {step.epoch + 1}/{state.num_epochs}"
        numbers = f"loss {number(step.loss)}  {self._speed.samples_per_s:,.0f} samples/s"
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=step.step, description=where, numbers=numbers)
        else:
            left = duration((state.last_step - step.step) * self._speed.step_s)
            self._line(f"{where}  step {step.step}/{state.last_step}  {numbers}  {left} left")

    def _epoch(self, ended: EpochEnded, state: RunState) -> None:
        speed = ended.samples / ended.seconds if ended.seconds else 0.0
        scores = state.scores if state.scores_step == ended.step else {}
        self._line(
            f"epoch {ended.epoch + 1}/{state.num_epochs} done in {duration(ended.seconds)}: "
            f"loss {number(ended.loss)}, {speed:,.0f} samples/s{f', {scores_text(scores)}' if scores else ''}"
        )

    def _line(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


class _Speed:
    """Throughput over the last seconds."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, float]] = deque()
        self._samples = 0
        self._seconds = 0.0

    def add(self, samples: int, seconds: float) -> None:
        self._steps.append((samples, seconds))
        self._samples += samples
        self._seconds += seconds
        while self._seconds > _WINDOW_S and len(self._steps) > 1:
            old_samples, old_seconds = self._steps.popleft()
            self._samples -= old_samples
            self._seconds -= old_seconds

    @property
    def samples_per_s(self) -> float:
        return self._samples / self._seconds if self._seconds > 0 else 0.0

    @property
    def step_s(self) -> float:
        return self._seconds / len(self._steps) if self._steps else 0.0


@contextmanager
def show_training(
    *,
    is_shown: bool,
    runs_dir: Path | None = None,
    host: str = "",
    read_account: "Callable[[RunState], Account | None] | None" = None,
) -> Iterator[TrainingDisplay]:
    """Follow a run on this terminal, and sum it up when it ends; of several workers here, one shows it."""
    console = _Console(quiet=not is_shown)
    display = TrainingDisplay(console)
    try:
        yield display
    finally:
        display.close()
        if display.state.run:
            _sum_up(console, display.state, runs_dir or read_environment().runs_dir)
            if read_account is not None and is_shown and display.state.step:
                _tell_account(console, display.state, read_account, host)


def _sum_up(console: Console, state: RunState, runs_dir: Path) -> None:
    rows = {"steps": f"{state.step} of {state.last_step}"}
    if state.training_s:
        rows["training"] = f"{duration(state.training_s)}, {state.samples_per_s:,.0f} samples/s"
    if state.epochs:
        rows["loss"] = f"{number(state.epochs[-1].loss)} over epoch {state.epochs[-1].epoch + 1}"
    if state.scores:
        rows["held out"] = scores_text(state.scores).replace("held-out ", "")
    if state.checkpoint:
        rows["checkpoint"] = str(runs_dir / state.run / "checkpoints" / state.checkpoint)
    console.print()
    console.print(Text(f"{state.run}: {state.ended or 'ended'}", style="bold"), soft_wrap=True)
    for name, value in rows.items():
        _print_row(console, name, value)
    if state.ended in ("stopped", "failed") and state.checkpoint:
        console.print(Text(f"  go on with  potluck train --resume --experiment-name {state.run}"), soft_wrap=True)


def _tell_account(
    console: Console, state: RunState, read_account: "Callable[[RunState], Account | None]", host: str
) -> None:
    """Where the time went: a line alone, a table together. A run is not worse for having no account."""
    from potluck.cli.plan_tables import show_account, time_line

    try:
        account = read_account(state)
        if account is None:
            if state.shares:
                _print_row(console, "time", f"the other machines' events are not here; when they are: {_report(state)}")
        elif account.efficiency is None and len(account.step_parts_s) == 1:
            _print_row(console, "time", time_line(account))
        else:
            console.print()
            show_account(console, account, _MOST_LOSSES)
            where = f", on {host}" if host else ""
            console.print(Text(f"more of it{where}: {_report(state)}"), soft_wrap=True)
    except Exception as error:  # noqa: BLE001  whatever is wrong with the events, the run is done
        _print_row(console, "time", f"no account: {type(error).__name__}: {error}")


def _report(state: RunState) -> str:
    return f"potluck report {state.run}"


def _print_row(console: Console, name: str, value: str) -> None:
    console.print(Text(f"  {name:<11}{value}"), soft_wrap=True)
