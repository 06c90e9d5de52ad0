"""Prints the output of a run's workers: the last lines of each, then new lines as they arrive at the host."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from potluck.cli.saying import say, warn
from potluck.cli.script_output import label_of
from potluck.core.errors import MeetingError, did_you_mean
from potluck.core.states import ENDED
from potluck.meeting.client.cluster import ClusterClient

_LINE_BYTES = 400  # more than most lines take
_MOST_BYTES = 1 << 18  # as much of one file as the host sends at once
_LEAST_BYTES = 1 << 16  # one long line is within it


def print_logs(
    cluster: ClusterClient, run: dict[str, Any], *, machines: Collection[str], num_lines: int, follows: bool
) -> None:
    """Print until the run is over, or what there is now; Ctrl-C ends this command and not the run."""
    name = run["run"]
    for machine in machines:
        if machine not in run["workers"]:
            raise MeetingError(f"{machine} is not in run {name}", fix=did_you_mean(machine, run["workers"]))
    tail_bytes = min(max(num_lines * _LINE_BYTES, _LEAST_BYTES), _MOST_BYTES)
    is_first, has_printed = True, False
    try:
        for news in cluster.follow(name, warn, only_logs=True, tail_bytes=tail_bytes):
            for file, text in news.chunks:
                worker = Path(file).name.split(".")[0]
                if machines and worker.rpartition("-")[0] not in machines:
                    continue
                lines = text.splitlines()
                for line in lines[-num_lines:] if is_first and num_lines else lines:
                    has_printed = True
                    say(f"{label_of(worker, news.run)}: {line}")
            run, is_first = news.run, False
            if not follows:
                break
    except KeyboardInterrupt:
        warn(
            f"left the logs: run {name} goes on; come back with: potluck logs {name}; end it with: potluck stop {name}"
        )
        return
    if not has_printed:
        warn(f"no worker of run {name} has printed anything; its steps and notices are in: potluck attach {name}")
    if run["state"] in ENDED:
        warn(f"run {name} is {run['state']}")
