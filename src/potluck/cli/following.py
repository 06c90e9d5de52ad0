"""Shows a run on several machines in one display: their common progress, and what each machine prints."""

import threading
import time
from pathlib import Path
from typing import Any

from potluck.cli.crashes import CrashTeller
from potluck.cli.data_lines import DataTeller
from potluck.cli.display import TrainingDisplay, show_training
from potluck.cli.interrupts import leaving_on_interrupt, stopping_on_interrupt
from potluck.cli.script_output import ScriptOutput
from potluck.core.cards import together
from potluck.core.environment import read_environment
from potluck.core.exit_codes import DIVERGED, STOPPED
from potluck.core.run_folder import RunFolder
from potluck.core.shell_words import quote
from potluck.core.states import ENDED
from potluck.core.words import counted
from potluck.events.state import RunState
from potluck.events.types import EpochEnded, LinePrinted, RunStarted, WorkersUsed
from potluck.meeting.client.cluster import ClusterClient, News
from potluck.meeting.host.admission_checks import MOST_CLOCK_S
from potluck.meeting.new_lines import NewLines
from potluck.report.live_view import LiveView
from potluck.report.machines_now import machines_line, speeds_line
from potluck.report.outlets import Outlet, open_outlet
from potluck.report.plain_account import PlainAccount

_FIRST_SHARES = 3  # steps, after which the events of other machines have arrived
_SPEEDS_EVERY_S = 2.0  # at most; epochs may be short
_LINES_BEFORE = 20  # of a run's history, when a display attaches


def follow_run(cluster: ClusterClient, started: dict[str, Any], log_to: str | None = None) -> int:
    """Show a run until it ends; Ctrl-C stops the run on all machines, a second Ctrl-C only leaves this display.

    The merged events of all workers since this start of the run go to the outlet `log_to`. Returns the exit code.
    """
    return _follow(cluster, started, log_to, is_attached=False)


def attach_run(cluster: ClusterClient, run: dict[str, Any]) -> int:
    """Show a run that another terminal started: of the lines before now the last ones, then every new one.

    Ctrl-C leaves this display while the run goes on. Returns the exit code.
    """
    return _follow(cluster, run, None, is_attached=True)


def _follow(cluster: ClusterClient, started: dict[str, Any], log_to: str | None, *, is_attached: bool) -> int:
    name = started["run"]
    is_given_up = threading.Event()
    is_here = cluster.membership.machine == cluster.membership.host
    folder = RunFolder((Path(started["folder"]).parent if is_here else read_environment().runs_dir) / name)
    with (
        open_outlet(log_to, folder, started["settings"]) as outlet,
        show_training(
            is_shown=True,
            runs_dir=lambda: _runs_dir(cluster, started),
            resume_with=_resume_with(started),
            read_account=lambda _: None if is_given_up.is_set() else cluster.account(name),
        ) as display,
    ):
        shown = _ShownRun(cluster, started, display, outlet)
        for line in _first_lines(started):
            display.say(line)
        if is_attached:
            display.hold_back(_LINES_BEFORE)
            interrupt = leaving_on_interrupt(name, display, is_given_up)
        else:
            what = "the script" if started["is_plain"] else "after the step"
            interrupt = stopping_on_interrupt(cluster, name, display, is_given_up, what)
        with interrupt:
            for news in cluster.follow(name, display.say, started.get("written")):
                shown.take(news)
                started = news.run
                if is_attached and not news.has_more:
                    display.let_go()
        if is_given_up.is_set():
            if not is_attached:
                display.say(_still_stopping(started))
            return 0 if is_attached else STOPPED
        if started["is_plain"]:
            display.sum_up_plain(name, started["state"], shown.account())
        else:
            outlet(*shown.view.end(started["state"]))
            display.state = shown.view.state
    if started["state"] == "failed":
        raise shown.crashes.failure(started)
    return _exit_code(started["state"], shown.view.state)


def _first_lines(started: dict[str, Any]) -> list[str]:
    """Where the run is, and what to know about it before it begins."""
    lines = [f"run {started['run']} on {_machines(started)}", started.get("warning", "")]
    if started["is_direct"]:
        lines.append("gradients go from machine to machine in the open (--direct); all else goes through the gates")
    if started["is_plain"]:
        lines += plain_lines(started)
    return [line for line in lines if line]


def _runs_dir(cluster: ClusterClient, run: dict[str, Any]) -> Path:
    """Where the run's folder is now: the host may be another machine than at the run's start."""
    membership, folder = cluster.membership, Path(run["folder"]).parent
    return folder if membership.machine == membership.host else Path(f"{membership.host}:{folder}")


class _ShownRun:
    """Shows the news of one run: events of all workers merged, what workers print, crashes and trouble."""

    def __init__(
        self, cluster: ClusterClient, started: dict[str, Any], display: TrainingDisplay, outlet: Outlet
    ) -> None:
        self.view = LiveView(since=started["started_at"] - MOST_CLOCK_S)
        machines = cluster.status()["machines"]
        names = {one[kind]: one["machine"] for one in machines for kind in ("address", "loopback")}
        self.crashes = CrashTeller(display.say, cluster.membership.host, names)
        self._run = started["run"]
        self._display = display
        self._outlet = outlet
        self._output = ScriptOutput(display.say)
        self._trouble = NewLines()
        self._data = DataTeller()
        self._damaged: set[str] = set()
        self._speeds_at = float("-inf")

    def account(self) -> PlainAccount:
        """The account of a plain run so far."""
        return PlainAccount.of(worker.state for worker in self.view.merge.workers.values())

    def take(self, news: News) -> None:
        """Show new lines of the run's files, and what the host says about the run."""
        for record, state in self.view.take([chunk for chunk in news.chunks if chunk[0].startswith("events/")]):
            if isinstance(record.event, LinePrinted):
                self._output.show_once(record.event.text)
            elif not isinstance(record.event, RunStarted | WorkersUsed):  # one worker's device says little here
                self._display(record, state)
            self._outlet(record, state)
            if isinstance(record.event, EpochEnded) and time.monotonic() - self._speeds_at > _SPEEDS_EVERY_S:
                self._speeds_at = time.monotonic()
                if line := speeds_line(self.view.merge, state.benched, state.global_batch):
                    self._display.say(line)
        say = self._display.say
        for file in self.view.damaged.keys() - self._damaged:
            self._damaged.add(file)
            say(f"{file} of this run has a damaged line, which is left out; see: potluck report {self._run}")
        for file, text in news.chunks:
            if file.startswith("logs/"):
                self._output.show_log(file, text, news.run)
        self.crashes.look(news.run)
        for line in self._trouble.of(news.run["trouble"]):
            say(line)
        if line := self._data.line(news.run.get("data"), news.run["workers"]):
            say(line)
        shares = machines_line(self.view.merge, self.view.state.benched, news.run["workers"])
        self._display.show_machines(shares if self.view.state.step >= _FIRST_SHARES else "")


def _exit_code(state: str, seen: RunState) -> int:
    if state != "finished":
        return STOPPED
    return DIVERGED if seen.diverged_since else 0


def _resume_with(run: dict[str, Any]) -> str:
    """The command that goes on with the run."""
    settings = run["settings"]
    if "script" not in settings:
        return f"potluck train --resume --experiment-name {run['run']}"
    script = " ".join(quote(str(word)) for word in [settings["script"], *settings.get("arguments", [])])
    return f"potluck run --resume --experiment-name {run['run']} {script}"


def _machines(run: dict[str, Any]) -> str:
    parts = []
    for machine, workers in run["workers"].items():
        parts.append(f"{machine} ({together(worker.get('card') or worker['device'] for worker in workers)})")
    return ", ".join(parts)


def plain_lines(run: dict[str, Any]) -> list[str]:
    """What a plain run is: how many ranks, where rank 0 is, and what is not encrypted."""
    ranks = {machine: [worker["number"] for worker in own] for machine, own in run["workers"].items()}
    first = next(machine for machine, numbers in ranks.items() if 0 in numbers)
    lines = [
        f"plain: {counted(sum(map(len, ranks.values())), 'rank')} with equal shares, rank 0 on {first}; "
        "the loss of one worker ends the run"
    ]
    has_cards = any(worker["device"] != "cpu" for own in run["workers"].values() for worker in own)
    if has_cards and len(ranks) > 1:  # the script chooses its backend, so nothing more is known
        lines.append(
            "if the script uses NCCL, its gradients go from machine to machine unencrypted; with the backend gloo they "
            "stay in the gates"
        )
    return lines


def _still_stopping(run: dict[str, Any]) -> str:
    busy = [
        f"{machine}-{worker['number']}"
        for machine, workers in run["workers"].items()
        for worker in workers
        if worker["state"] not in ENDED
    ]
    what = f"{', '.join(busy)} still {'ends its' if len(busy) == 1 else 'end their'} work" if busy else "files are sent"
    return f"run {run['run']} is not over yet: {what}; it goes on stopping, see: potluck status"
