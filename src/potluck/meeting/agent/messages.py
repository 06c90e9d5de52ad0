"""Messages from other threads and signal handlers to the agent's loop, and from the loop to the delivering thread."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from potluck.core.errors import MeetingError
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.succession.notes import Known
from potluck.meeting.wire import DataReport, GateOrders, Orders, Report, SharingOrder
from potluck.meeting.workers.fork_client import ForkServerEnded
from potluck.meeting.workers.messages import WorkerNews
from potluck.sharing.folders import WorkerFolder


class RunData(Protocol):
    """A run's folders of data on this machine, as `shared_data` keeps them."""

    def follow(self, order: SharingOrder, gates: GateOrders) -> None:
        """Take the current peers."""

    def report(self) -> list[DataReport]:
        """How far the data has arrived."""

    def line(self) -> str:
        """The same for this machine's display."""

    def wait(self, working_folder: Path | None) -> list[WorkerFolder]:
        """Wait until workers can start; returns what they have to know."""

    def close(self) -> None:
        """Stop sharing."""


@dataclass(slots=True, kw_only=True)
class AgentPlace:
    """Settings of a joined machine that all its runs share."""

    home: Home
    membership: HostMembership
    """Changes when another machine becomes the host; only the agent's loop changes it."""
    gate: str
    """The socket of this machine's gate."""
    threads: int | None
    data_dir: Path
    data: dict[str, "RunData"] = field(default_factory=dict)
    """The data of runs, by the run's id; also of a run that this machine has the data of and no workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesToSend:
    """One run's files on this machine at one moment of the run."""

    run: str
    start_number: int
    num_starts: int
    """How often workers were started here; distinguishes the files before a restart from the files after it."""
    folder: Path
    is_at_host: bool
    """True on the host's own machine, which writes into the host's run folder: nothing has to be sent."""
    is_training: bool


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the host should receive: this machine's report, and the files of its runs."""

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
    """The host has refused this machine: the agent leaves and raises `error`."""

    error: MeetingError


@dataclass(frozen=True, slots=True)
class Delivered:
    """The entries whose files are all at the host; replaces the previous message."""

    files: frozenset[FilesToSend]


@dataclass(frozen=True, slots=True)
class DevicesCounted:
    """The devices that this machine can train on, and the names of their cards by device."""

    devices: list[str] | None
    """None until they are counted."""
    cards: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPrepared:
    """Preparation of a run has ended; `failure` says why the run cannot start here, if it cannot."""

    run: str
    start_number: int
    working_folder: Path
    """Current folder of the run's workers, and the folder of its script."""
    data: tuple[WorkerFolder, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A line for the person at this machine, printed unless the previous one was the same."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    """Stop after the step, for which workers get `step_s`, and leave."""

    step_s: float
    in_silence: bool = False
    """Send nothing more to the host: another agent takes over, and the host could mistake these reports for its."""


@dataclass(frozen=True, slots=True)
class NoteHeard:
    """A note about the host from another machine."""

    sender: str
    note: Known


AgentMessage: TypeAlias = (
    Orders
    | NoteHeard
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
