"""Shows a run while it trains: a progress bar on a terminal, a line a second elsewhere, and a summary at the end."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from potluck.cli.named_rows import print_rows
from potluck.cli.plain_summary import show_plain
from potluck.cli.plan_lines import PlanLines
from potluck.cli.terminal import Console
from potluck.core.environment import read_environment
from potluck.events.progress_lines import backend_lines, begin_line, epoch_line, group_lines, step_line, step_numbers
from potluck.events.recent_speed import RecentSpeed
from potluck.events.state import RunState
from potluck.events.types import (
    BackendChosen,
    EpochEnded,
    GroupChanged,
    Notice,
    PlanChanged,
    Record,
    RunStarted,
    StepCommitted,
    TrainingBegan,
)
from potluck.report.plain_account import PlainAccount
from potluck.report.words import duration, losses_text, scores_text

if TYPE_CHECKING:
    from potluck.report.account import Account

_WINDOW_S = 5.0
_LINE_EVERY_S = 1.0
_MACHINES_EVERY_S = 10.0
_MOST_LOSSES = 6


class _Console(Console):
    """A console that goes quiet when its pipe is closed, so that training goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class _Bar(Progress):
    """A progress bar with a line about machines below it."""

    below = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.below:
            yield Text(self.below)


class TrainingDisplay:
    """Shows a run's events, as a progress bar on a terminal or as lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self.state = RunState()
        self._console = console
        self._speed = RecentSpeed(_WINDOW_S)
        self._printed_at = 0.0
        self._progress: _Bar | None = None
        self._machines = ""
        self._machines_at = float("-inf")
        self._held: deque[str] | None = None
        self._plans = PlanLines()
        if console.is_terminal:
            self._progress = _Bar(
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
            case RunStarted(run=run) as started:
                self._line(f"run {run} on {started.place}")
            case TrainingBegan() as began:
                self._begin(began, state)
            case StepCommitted() as step:
                self._step(step, state)
            case EpochEnded() as ended:
                self._epoch(ended, state)
            case Notice(text=text):
                self._line(text)
            case GroupChanged() as changed:
                for line in group_lines(changed):
                    self._line(line)
            case BackendChosen() as chosen:
                for line in backend_lines(chosen):
                    self._line(line)
            case PlanChanged() as plan:
                self._plans.note(plan)
        for line in self._plans.due(time.monotonic()):
            self._line(line)

    def say(self, text: str) -> None:
        """Print a line that does not come from an event."""
        self._line(text)

    def show_machines(self, text: str) -> None:
        """Show the machines' shares below the bar, or print a line when they change, at most every ten seconds."""
        if self._progress is not None:
            self._progress.below = text
        elif text and text != self._machines and time.monotonic() - self._machines_at >= _MACHINES_EVERY_S:
            self._machines, self._machines_at = text, time.monotonic()
            self._line(text)

    def hold_back(self, most: int) -> None:
        """Keep lines instead of printing them, the last `most` of them, until `let_go` is called."""
        self._held = deque(maxlen=most)

    def let_go(self) -> None:
        """Print the lines that were held back, and all later lines at once."""
        held, self._held = self._held or (), None
        for line in held:
            self._line(line)

    def sum_up_plain(self, run: str, ended: str, account: PlainAccount) -> None:
        """Print the account of a plain run, of which no steps are known."""
        self.state = RunState()  # else a summary of steps would follow
        show_plain(self._console, run, ended, account)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _begin(self, began: TrainingBegan, state: RunState) -> None:
        self._line(begin_line(began, state))
        if self._progress is not None and self._task is not None and state.step < began.last_step:
            self._progress.update(self._task, total=began.last_step, completed=state.step, visible=True)
            self._progress.start()

    def _step(self, step: StepCommitted, state: RunState) -> None:
        self._speed.add(step.samples, step.seconds)
        now = time.monotonic()
        if self._progress is None and (self._held is not None or now - self._printed_at < _LINE_EVERY_S):
            return
        self._printed_at = now
        if self._progress is not None and self._task is not None:
            where, numbers = f"epoch {step.epoch + 1}/{state.num_epochs}", step_numbers(step, self._speed.samples_per_s)
            self._progress.update(self._task, completed=step.step, description=where, numbers=numbers)
        else:
            self._line(step_line(step, state, self._speed.samples_per_s, self._speed.step_s))

    def _epoch(self, ended: EpochEnded, state: RunState) -> None:
        scores = state.scores if state.scores_step == ended.step else {}
        self._line(epoch_line(ended, state) + (f", {scores_text(scores)}" if scores else ""))

    def _line(self, text: str) -> None:
        if self._held is not None:
            self._held.append(text)
            return
        self._console.print(Text(text), soft_wrap=True)


@contextmanager
def show_training(
    *,
    is_shown: bool,
    runs_dir: "Callable[[], Path] | None" = None,
    resume_with: str = "",
    read_account: "Callable[[RunState], Account | None] | None" = None,
) -> Iterator[TrainingDisplay]:
    """Show a run on this terminal, and print a summary at its end. `is_shown`: False for all but one of its workers."""
    console = _Console(quiet=not is_shown)
    display = TrainingDisplay(console)
    try:
        yield display
    finally:
        display.close()
        if display.state.run:
            _sum_up(console, display.state, runs_dir() if runs_dir else read_environment().runs_dir, resume_with)
            if read_account is not None and is_shown and display.state.step:
                _print_account(console, display.state, read_account)


def _sum_up(console: Console, state: RunState, runs_dir: Path, resume_with: str) -> None:
    rows = {"steps": f"{state.step} of {state.last_step}"}
    if state.training_s:
        rows["training"] = f"{duration(state.training_s)}, {state.samples_per_s:,.0f} samples/s on average"
    rows |= losses_text(state)
    if state.scores:
        rows["held out"] = scores_text(state.scores).replace("held-out ", "")
    if state.checkpoint:
        rows["checkpoint"] = str(runs_dir / state.run / "checkpoints" / state.checkpoint)
    console.print()
    but = f", but the loss has diverged since step {state.diverged_since:,}" if state.diverged_since else ""
    console.print(Text(f"{state.run}: {state.ended or 'ended'}{but}", style="bold"), soft_wrap=True)
    print_rows(console, rows)
    if state.ended in ("stopped", "failed") and state.checkpoint:
        command = resume_with or f"potluck train --resume --experiment-name {state.run}"
        console.print(Text(f"  go on with  {command}"), soft_wrap=True)


def _print_account(console: Console, state: RunState, read_account: "Callable[[RunState], Account | None]") -> None:
    """Print where the time went: a line for one machine, tables for several. An error here must not fail the run."""
    from potluck.cli.account_tables import show_account, show_shares
    from potluck.report.account_words import time_line

    try:
        account = read_account(state)
        if account is None:
            if state.shares:
                missing = "the other machines' events are not here; when they are:"
                print_rows(console, {"time": f"{missing} {_report(state)}"})
        elif account.efficiency is None and len(account.step_parts_s) == 1:
            print_rows(console, {"time": time_line(account)})
        else:
            console.print()
            show_shares(console, account)
            console.print()
            console.print(Text("where the time went", style="bold"))
            show_account(console, account, _MOST_LOSSES, state.step)
            console.print(Text(f"the whole report: {_report(state)}"), soft_wrap=True)
    except Exception as error:  # noqa: BLE001  whatever is wrong with the events, the run is done
        print_rows(console, {"time": f"no account: {type(error).__name__}: {error}"})


def _report(state: RunState) -> str:
    return f"potluck report {state.run}"
