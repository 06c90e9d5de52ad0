"""What a machine must not forget about the host's terms: the newest orders, and the newest term that has its vote."""

from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from potluck.core.atomic import write_secret
from potluck.core.errors import MeetingError
from potluck.core.plain_file import read_plain
from potluck.core.shell_words import quote
from potluck.meeting.wire import GateOrders, MachineName


class Ballot(BaseModel):
    """The cluster as this machine knows it, and its promise."""

    model_config = ConfigDict(frozen=True)

    orders: GateOrders | None = None
    """The gates' part of the newest orders: members with addresses and certificates, host and term."""
    promised: int = Field(default=0, ge=0)
    """The newest term for which this machine has promised its vote."""

    @property
    def term(self) -> int:
        return 0 if self.orders is None else self.orders.succession.term

    @property
    def host(self) -> MachineName | None:
        return None if self.orders is None else self.orders.host

    @property
    def newest_term(self) -> int:
        return max(self.term, self.promised)


class BallotFile:
    """A machine's ballot on its disk. One process at a time changes it: the host's, else the agent's."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ballot.json"
        self.ballot = self._read()
        self._read_at = 0

    def _read(self) -> Ballot:
        try:
            return Ballot.model_validate_json(read_plain(self._path))
        except FileNotFoundError:
            return Ballot()
        except (ValidationError, OSError):
            raise MeetingError(
                f"{self._path} is damaged: this machine does not know any more whom it has promised its vote",
                fix=f"rm -r {quote(self._path)}, once all other machines follow the same host (potluck status there)",
            ) from None

    def look_again(self) -> None:
        """Read the ballot again if the host's part on this machine has changed it; a damaged file changes nothing."""
        with suppress(OSError, MeetingError):
            changed_at = self._path.stat().st_mtime_ns
            if changed_at != self._read_at:
                self._read_at, self.ballot = changed_at, self._read()

    def note(self, **changes: object) -> None:
        """Change the ballot, and write it before anything is done by it. OSError if it cannot be written."""
        changed = self.ballot.model_copy(update=changes)
        if changed != self.ballot:
            write_secret(self._path, changed.model_dump_json())
            self.ballot = changed

    def forget(self) -> None:
        """Forget a cluster that this machine does not belong to any more."""
        self._path.unlink(missing_ok=True)
        self.ballot = Ballot()
