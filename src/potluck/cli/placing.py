"""Where a run goes: to everyone joined if this machine is, else it stays here."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from potluck.core.errors import MeetingError

if TYPE_CHECKING:
    from potluck.meeting.home import Membership


def joined_host(home_dir: Path) -> "Membership | None":
    """The host that this machine has joined and works for now."""
    if not (home_dir / "joined.json").is_file():
        return None
    from potluck.meeting.home import Home

    home = Home(home_dir)
    return home.membership() if home.is_joined_now() else None


def tell_aside(text: str) -> None:
    """A line for people, beside what a script reads."""
    print(text, file=sys.stderr)


def chosen_machines(machines: str | None, here: str, *, not_here: bool) -> tuple[list[str] | None, list[str]]:
    """The names that were given, and the ones to leave out."""
    return (None if machines is None else [name.strip() for name in machines.split(",")], [here] if not_here else [])


def train_together(
    layers: list[dict[str, Any]], home_dir: Path, *, not_here: bool, machines: str | None, log_to: str | None = None
) -> int | None:
    """Start the run on the cluster and follow it; None where this machine has joined no host."""
    if joined_host(home_dir) is None:
        refuse_placement(not_here=not_here, machines=machines)
        return None
    from potluck.cli.following import follow_run
    from potluck.core.settings import combine
    from potluck.meeting.cluster import Cluster
    from potluck.meeting.home import Home
    from potluck.meeting.wire import RunRequest, Task
    from potluck.report.outlets import check_outlet

    check_outlet(log_to)
    asked = combine(*layers).model_dump(mode="json", exclude_unset=True)
    with Cluster(Home(home_dir)) as cluster:
        names, without = chosen_machines(machines, cluster.membership.machine, not_here=not_here)
        started = cluster.start(RunRequest(task=Task(settings=asked), machines=names, without=without))
        return follow_run(cluster, started, log_to)


def refuse_placement(*, not_here: bool, machines: str | None) -> None:
    """Words about other machines make no sense where there are none."""
    if not_here or machines is not None:
        raise MeetingError(
            "this machine has not joined a host, so there are no other machines",
            fix="join one with the line that potluck host prints, or leave --not-here and --machines out",
        )
