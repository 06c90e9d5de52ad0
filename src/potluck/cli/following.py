"""Shows a run on several machines in one display: their common progress, and what each machine prints."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from potluck.cli.crashes import CrashTeller
from potluck.cli.display import TrainingDisplay, show_training
from potluck.cli.script_output import ScriptOutput
from potluck.core.environment import read_environment
from potluck.core.errors import MeetingError
from potluck.core.exit_codes import DIVERGED
from potluck.core.run_folder import RunFolder
from potluck.core.shell_words import quote
from potluck.core.states import ENDED
from potluck.events.state import RunState
from potluck.events.types import LinePrinted, RunStarted
from potluck.meeting.client.cluster import ClusterClient
from potluck.meeting.host.admission_checks import MOST_CLOCK_S
from potluck.meeting.new_lines import NewLines
from potluck.report.live_view import LiveView
from potluck.report.machines_now import machines_line
from potluck.report.outlets import open_outlet

EXIT_STOPPED = 130
_FIRST_SHARES = 3  # steps, after which the events of other machines have arrived
_STOP_S = 10.0  # from Ctrl-C until this display ends, while the machines go on stopping


class _StopTakesLong(Exception):  # noqa: N818  not an error
    """The run has not ended within _STOP_S seconds after Ctrl-C."""


def follow_run(cluster: ClusterClient, started: dict[str, Any], log_to: str | None = None) -> int:
    """Show a run until it ends; Ctrl-C stops the run on all machines, a second Ctrl-C only leaves this display.

    The merged events of all workers since this start of the run go to the outlet `log_to`. Returns the exit code.
    """
    name = started["run"]
    begin = started["started_at"] - MOST_CLOCK_S
    view = LiveView(since=begin)
    is_given_up = threading.Event()
    trouble = NewLines()
    damaged: set[str] = set()
    machines = cluster.status()["machines"]
    names = {one[kind]: one["machine"] for one in machines for kind in ("address", "loopback")}
    host, here = cluster.membership.host, cluster.membership.machine
    runs_dir = str(Path(started["folder"]).parent)
    folder = RunFolder(Path(runs_dir) / name if here == host else read_environment().runs_dir / name)
    with (
        open_outlet(log_to, folder, started["settings"]) as outlet,
        show_training(
            is_shown=True,
            runs_dir=Path(runs_dir if here == host else f"{host}:{runs_dir}"),
            resume_with=_resume_with(started),
            read_account=lambda _: None if is_given_up.is_set() else cluster.account(name),
        ) as display,
    ):
        crashes, output = CrashTeller(display.say, host, names), ScriptOutput(display.say)
        display.say(f"run {name} on {_machines(started)}")
        if started["is_direct"]:
            display.say("gradients go from machine to machine in the open (--direct); all else goes through the gates")
        with _stopping_on_interrupt(cluster, name, display, is_given_up):
            for news in cluster.follow(name, display.say, started.get("written")):
                for record, state in view.take([chunk for chunk in news.chunks if chunk[0].startswith("events/")]):
                    if isinstance(record.event, LinePrinted):
                        output.show_once(record.event.text)
                    elif not isinstance(record.event, RunStarted):  # one worker's device says little here
                        display(record, state)
                    outlet(record, state)
                for file in view.damaged.keys() - damaged:
                    damaged.add(file)
                    display.say(f"{file} of this run has a damaged line, which is left out; see: potluck report {name}")
                for file, text in news.chunks:
                    if file.startswith("logs/"):
                        output.show_log(file, text, news.run)
                crashes.look(news.run)
                for line in trouble.of(news.run["trouble"]):
                    display.say(line)
                shares = machines_line(view.merge, view.state.benched, news.run["workers"])
                display.show_machines(shares if view.state.step >= _FIRST_SHARES else "")
                started = news.run
        if is_given_up.is_set():
            display.say(_still_stopping(started))
            return EXIT_STOPPED
        outlet(*view.end(started["state"]))
        display.state = view.state
    if started["state"] == "failed":
        raise crashes.failure(started)
    return _exit_code(started["state"], view.state)


def _exit_code(state: str, seen: RunState) -> int:
    if state != "finished":
        return EXIT_STOPPED
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
        parts.append(f"{machine} ({', '.join(worker['device'] for worker in workers)})")
    return ", ".join(parts)


def _still_stopping(run: dict[str, Any]) -> str:
    busy = [
        f"{machine}-{worker['number']}"
        for machine, workers in run["workers"].items()
        for worker in workers
        if worker["state"] not in ENDED
    ]
    what = f"{', '.join(busy)} still {'ends its' if len(busy) == 1 else 'end their'} work" if busy else "files are sent"
    return f"run {run['run']} is not over yet: {what}; it goes on stopping, see: potluck status"


@contextmanager
def _stopping_on_interrupt(
    cluster: ClusterClient, run: str, display: TrainingDisplay, is_given_up: threading.Event
) -> Iterator[None]:
    """The first Ctrl-C asks the host to stop the run; the second one interrupts this process as usual.

    If the run has not ended _STOP_S seconds after the first, this process stops waiting and sets `is_given_up`.
    """

    def ask(number: int, _: FrameType | None) -> None:
        signal.signal(number, before)
        display.say("stopping after the step; Ctrl-C again leaves this display while the machines go on stopping")
        signal.setitimer(signal.ITIMER_REAL, _STOP_S)
        try:
            with cluster.beside() as other:  # the display's own connection is waiting for news
                other.stop(run)
        except MeetingError as error:
            display.say(f"the run is not stopped: {error}")

    def give_up(*_: object) -> None:
        is_given_up.set()
        raise _StopTakesLong

    before = signal.signal(signal.SIGINT, ask)
    before_alarm = signal.signal(signal.SIGALRM, give_up)
    try:
        with suppress(_StopTakesLong):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before_alarm)
        signal.signal(signal.SIGINT, before)
