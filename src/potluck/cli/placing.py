"""Where a run goes: to everyone joined if this machine is, else it stays here."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from potluck.core.errors import MeetingError

if TYPE_CHECKING:
    from potluck.meeting.home import Membership
    from potluck.meeting.wire import RunRequest, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """On which machines, and how gradients travel between them."""

    machines: str | None = None
    not_here: bool = False
    is_direct: bool = False

    def request(self, task: "Task", here: str, *, name: str | None = None, resume: bool = False) -> "RunRequest":
        """What the host is asked for, by the machine called `here`."""
        from potluck.meeting.wire import RunRequest

        chosen = None if self.machines is None else [one.strip() for one in self.machines.split(",")]
        without = [here] if self.not_here else []
        return RunRequest(
            name=name, resume=resume, task=task, machines=chosen, without=without, is_direct=self.is_direct
        )


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


def train_together(
    layers: list[dict[str, Any]], home_dir: Path, placement: Placement, log_to: str | None = None
) -> int | None:
    """Start the run on the cluster and follow it; None where this machine has joined no host."""
    if joined_host(home_dir) is None:
        if placement != Placement():
            raise MeetingError(
                "this machine has not joined a host, so there are no other machines",
                fix="join one with the line that potluck host prints, or leave --not-here, --machines and --direct out",
            )
        return None
    from potluck.cli.following import follow_run
    from potluck.core.settings import combine
    from potluck.meeting.cluster import Cluster
    from potluck.meeting.home import Home
    from potluck.meeting.wire import Task
    from potluck.report.outlets import check_outlet

    check_outlet(log_to)
    asked = combine(*layers).model_dump(mode="json", exclude_unset=True)
    with Cluster(Home(home_dir)) as cluster:
        started = cluster.start(placement.request(Task(settings=asked), cluster.membership.machine))
        return follow_run(cluster, started, log_to)
