"""What other threads and signal handlers tell the agent's loop, and what the loop hands to the delivering thread."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from potluck.core.errors import MeetingError
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.wire import Orders, Report
from potluck.meeting.workers.fork_client import ForkServerEnded
from potluck.meeting.workers.messages import WorkerNews


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlace:
    """What a joined machine works with, the same for all runs."""

    home: Home
    membership: HostMembership
    gate: str
    """The socket of this machine's gate."""
    threads: int | None
    data_dir: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesToSend:
    """One run's files on this machine at one moment of the run."""

    run: str
    start_number: int
    num_starts: int
    """How often workers were started here, so that files of an earlier time are not taken for those of now."""
    folder: Path
    is_at_host: bool
    """This is the host's machine, which writes where everything comes together: nothing has to travel."""
    is_training: bool


@dataclass(frozen=True, slots=True)
class Delivery:
    """What should be at the host: how the machine stands, and the files of its runs."""

    report: Report
    files: tuple[FilesToSend, ...]


@dataclass(frozen=True, slots=True)
class HostHeard:
    """The host has answered."""


@dataclass(frozen=True, slots=True)
class HostSilent:
    """The host does not answer."""


@dataclass(frozen=True, slots=True)
class HostRefuses:
    """The host does not want this machine."""

    error: MeetingError


@dataclass(frozen=True, slots=True)
class Delivered:
    """All of these files are at the host, and no others."""

    files: frozenset[FilesToSend]


@dataclass(frozen=True, slots=True)
class DevicesCounted:
    """What this machine can train on."""

    devices: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPrepared:
    """A run can start here, or cannot for this reason."""

    run: str
    start_number: int
    working_folder: Path
    """Where its workers run, and where its script lies."""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A line for the person at this machine, told when it is new."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    """Stop after the step, and leave."""

    step_s: float
    in_silence: bool = False
    """Another agent takes this one's place, and the host must not take its last words for that one's."""


AgentMessage: TypeAlias = (
    Orders
    | HostHeard
    | HostSilent
    | HostRefuses
    | Delivered
    | DevicesCounted
    | RunPrepared
    | Trouble
    | LeaveRequest
    | WorkerNews
    | ForkServerEnded
)
