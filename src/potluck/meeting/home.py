"""The folder ~/.potluck: a machine's membership of a host, a host's secrets, run folders and bundles."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from potluck.core.atomic import write_secret
from potluck.core.errors import MeetingError
from potluck.core.file_lock import try_hold
from potluck.core.plain_file import read_plain
from potluck.core.shell_words import quote
from potluck.meeting.wire import MachineName, Port, Short

_MACHINE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_AGENT, _HOST = "agent.lock", "host.lock"
_SENT_AWAY = "sent-away"

Fingerprint = Annotated[str, Field(pattern=r"^([0-9a-f]{2}){1,64}$")]


class HostMembership(BaseModel):
    """The host that this machine has joined: name, address, certificate fingerprint, and this machine's credential."""

    machine: MachineName
    host: MachineName
    address: str
    port: Port
    fingerprint: Fingerprint
    credential: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,300}$")]
    versions: dict[Short, Short] = Field(default={}, max_length=20)
    """This machine's versions when it joined, which the host has checked; empty in memberships of earlier releases."""

    @property
    def is_of_own_host(self) -> bool:
        """Whether the remembered host is this machine itself."""
        return self.host == self.machine


class Home:
    """The folder ~/.potluck: files that only this user may read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def host_dir(self) -> Path:
        return self.folder / "host"

    @property
    def invitation_file(self) -> Path:
        """The lines to paste on other machines, written by a host that runs as a service."""
        return self.host_dir / "invitation.txt"

    @property
    def identity_dir(self) -> Path:
        return self.folder / "identity"

    @property
    def runs_dir(self) -> Path:
        return self.folder / "runs"

    @property
    def bundles_dir(self) -> Path:
        return self.folder / "bundles"

    @property
    def succession_dir(self) -> Path:
        """Whom this machine follows and has promised its vote, and its copy of the host's state."""
        return self.folder / "succession"

    @property
    def data_dir(self) -> Path:
        """Folders of data that came from other machines."""
        return self.folder / "data"

    def machine_id(self) -> str:
        """A random id that distinguishes this machine from another of the same name; made once and kept."""
        path = self.folder / "machine-id"
        if not path.exists():
            write_secret(path, secrets.token_hex(8))
        try:
            text = read_plain(path).decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            text = ""
        if not _MACHINE_ID.fullmatch(text):
            raise MeetingError(
                f"{path} is damaged: it holds no machine's id",
                fix=f"rm -r {quote(path)}; a new one is made, and this machine has to join again with the host's line",
            )
        return text

    def membership(self) -> HostMembership | None:
        """The host that this machine has joined, if any."""
        path = self.folder / "joined.json"
        try:
            return HostMembership.model_validate_json(read_plain(path))
        except FileNotFoundError:
            return None
        except (ValidationError, OSError):
            raise MeetingError(f"{path} is damaged", fix=f"rm -r {quote(path)}, then join again") from None

    def remember(self, membership: HostMembership) -> None:
        write_secret(self.folder / "joined.json", membership.model_dump_json())
        (self.folder / _SENT_AWAY).unlink(missing_ok=True)

    def forget(self, *, sent_away_by: HostMembership | None = None) -> None:
        """Forget the membership; note the host that sent this machine away, if one did."""
        (self.folder / "joined.json").unlink(missing_ok=True)
        if sent_away_by is not None:
            write_secret(self.folder / _SENT_AWAY, sent_away_by.fingerprint)

    def sent_away_by(self) -> str | None:
        """The certificate fingerprint of the host that sent this machine away, until the machine joins again."""
        path = self.folder / _SENT_AWAY
        try:
            return read_plain(path).decode("ascii", "replace").strip()
        except FileNotFoundError:
            return None
        except OSError:
            raise MeetingError(f"{path} is damaged", fix=f"rm -r {quote(path)}, then join again") from None

    def is_joined_now(self) -> bool:
        """Whether runs that start here go to the host: this machine has joined one, and its agent or host runs now."""
        return self.membership() is not None and any(_is_held(self.folder / name) for name in (_AGENT, _HOST))

    def has_agent(self) -> bool:
        return _is_held(self.folder / _AGENT)

    def has_host(self) -> bool:
        return _is_held(self.folder / _HOST)

    def check_hosts_nothing(self) -> None:
        """Raise if a host runs on this machine: a machine cannot join a host while it is a host itself."""
        if _is_held(self.folder / _HOST):
            raise MeetingError(
                "this machine is a host itself, in another terminal",
                fix="end potluck host there with Ctrl-C first, then join; or let the other machines join this one",
            )

    def check_joined_nowhere(self) -> None:
        """Raise if this machine's agent works for another host: such a machine cannot become a host."""
        known = self.membership()
        if known is not None and not known.is_of_own_host and self.has_agent():
            raise MeetingError(
                f"this machine is joined to {known.host} ({known.address}) as {known.machine}, in another terminal",
                fix=f"leave there with Ctrl-C, or with: potluck leave; then potluck host. Or train on {known.host}'s "
                "machines as it is: potluck train",
            )

    @contextmanager
    def only_agent(self, wait_s: float = 0.0) -> Iterator[None]:
        """Hold the lock of this machine's only agent; waits up to `wait_s` for an earlier agent to end."""
        with _held(self.folder / _AGENT, wait_s) as is_mine:
            if not is_mine:
                raise MeetingError(
                    "this machine is joined already, in another terminal",
                    fix="leave it there with Ctrl-C first; see who is here with: potluck status",
                )
            yield

    @contextmanager
    def only_host(self) -> Iterator[None]:
        """Hold the lock of this machine's only host."""
        with _held(self.folder / _HOST) as is_mine:
            if not is_mine:
                raise MeetingError(
                    "this machine is a host already, in another terminal", fix="see who is here with: potluck status"
                )
            yield


@contextmanager
def _held(path: Path, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold a lock file while the block lasts; yields False if another process holds the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield try_hold(lock, wait_s=wait_s)
    finally:
        os.close(lock)


def _is_held(path: Path) -> bool:
    if not path.is_file():
        return False
    with _held(path) as is_mine:
        return not is_mine
