"""One display for a run on several machines: what they all do, and what each alone has to say."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from potluck.cli.display import TrainingDisplay, show_training
from potluck.core.environment import read_environment
from potluck.core.errors import MeetingError
from potluck.core.run_folder import RunFolder
from potluck.doctor.explain import explain
from potluck.events.types import RunStarted
from potluck.meeting.cluster import Cluster
from potluck.meeting.doorway import MOST_CLOCK_S
from potluck.meeting.together_view import TogetherView
from potluck.report.outlets import open_outlet

EXIT_STOPPED = 130


def follow_run(cluster: Cluster, started: dict[str, Any], log_to: str | None = None) -> int:
    """Show a run until it ends; Ctrl-C stops it on all machines, a second one only leaves this display.

    What all workers tell goes to an outlet here as one run, from this start of it on.
    """
    name = started["run"]
    view = TogetherView()
    crashes: set[tuple[str, int, str]] = set()
    machines = cluster.status()["machines"]
    names = {one[kind]: one["machine"] for one in machines for kind in ("address", "loopback")}
    host, here = cluster.membership.host, cluster.membership.machine
    runs_dir = str(Path(started["folder"]).parent)
    folder = RunFolder(Path(runs_dir) / name if here == host else read_environment().runs_dir / name)
    begin = started["started_at"] - MOST_CLOCK_S
    with (
        open_outlet(log_to, folder, started["settings"]) as outlet,
        show_training(
            is_shown=True,
            runs_dir=Path(runs_dir if here == host else f"{host}:{runs_dir}"),
            host="" if here == host else host,
            read_account=lambda _: cluster.account(name),
        ) as display,
    ):
        display.say(f"run {name} on {_machines(started)}")
        if started["is_direct"]:
            display.say("gradients go from machine to machine in the open (--direct); all else goes through the gates")
        with _stopping_on_interrupt(cluster, name, display):
            for news in cluster.follow(name, display.say):
                for record, state in view.take([chunk for chunk in news.chunks if chunk[0].startswith("events/")]):
                    if not isinstance(record.event, RunStarted):  # one worker's device says little here
                        display(record, state)
                    if record.time >= begin:
                        outlet(record, state)
                for file, text in news.chunks:
                    if file.startswith("logs/"):
                        _print_output(display, file, text)
                _tell_crashes(display, news.run, crashes, names)
                started = news.run
        outlet(*view.end(started["state"]))
        display.state = view.state
    if started["state"] == "failed":
        known = [f"{one.cause}: {one.fix}" for one in explain(started["message"], names)]
        raise MeetingError(
            f"run {name} failed\n{started['message']}".rstrip(),
            fix=f"{'; '.join(known) or 'mend what is named above'}; "
            f"what the workers printed is in {started['folder']}/logs",
        )
    return 0 if started["state"] == "finished" else EXIT_STOPPED


def _machines(run: dict[str, Any]) -> str:
    parts = []
    for machine, workers in run["workers"].items():
        parts.append(f"{machine} ({', '.join(worker['device'] for worker in workers)})")
    return ", ".join(parts)


def _print_output(display: TrainingDisplay, file: str, text: str) -> None:
    """What a script prints, with the worker's name before it."""
    worker = Path(file).name.split(".")[0]
    for line in text.splitlines():
        display.say(f"{worker}: {line}")


def _tell_crashes(
    display: TrainingDisplay, run: dict[str, Any], told: set[tuple[str, int, str]], names: dict[str, str]
) -> None:
    """Each crash once, with its traceback, by the machine's name, and what is known about it."""
    for machine, workers in run["workers"].items():
        for worker in workers:
            key = (machine, worker["restarts"], worker["message"])
            if worker["message"] and key not in told and run["state"] != "failed":
                told.add(key)
                again = "" if worker["state"] == "failed" else "; it starts again"
                display.say(f"worker {machine}-{worker['number']} crashed{again}:\n{worker['message']}")
                for known in explain(worker["message"], names):
                    display.say(f"cause: {known.cause}\n  fix: {known.fix}")


@contextmanager
def _stopping_on_interrupt(cluster: Cluster, run: str, display: TrainingDisplay) -> Iterator[None]:
    """The first Ctrl-C asks the host to stop the run; the second is an ordinary one."""

    def ask(number: int, _: FrameType | None) -> None:
        signal.signal(number, before)
        display.say("stopping after the step; Ctrl-C again leaves this display while the machines go on stopping")
        with cluster.beside() as other:  # the display's own connection is waiting for news
            other.stop(run)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
