"""What a machine keeps between commands: its membership of a host, its host's secrets, local run folders, bundles."""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ValidationError

from potluck.core.atomic import write_secret
from potluck.core.errors import MeetingError

_AGENT, _HOST = "agent.lock", "host.lock"


class Membership(BaseModel):
    """How this machine reaches its host, and what it shows there."""

    machine: str
    host: str
    address: str
    port: int
    fingerprint: str
    credential: str


class Home:
    """The folder ~/.potluck: files that only this user may read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def host_dir(self) -> Path:
        return self.folder / "host"

    @property
    def identity_dir(self) -> Path:
        return self.folder / "identity"

    @property
    def runs_dir(self) -> Path:
        return self.folder / "runs"

    @property
    def bundles_dir(self) -> Path:
        return self.folder / "bundles"

    def machine_id(self) -> str:
        """Tells this machine from another of the same name; made once."""
        path = self.folder / "machine-id"
        if not path.is_file():
            write_secret(path, secrets.token_hex(8))
        return path.read_text().strip()

    def membership(self) -> Membership | None:
        """The host that this machine has joined, if any."""
        path = self.folder / "joined.json"
        try:
            return Membership.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise MeetingError(f"{path} is damaged", fix=f"rm {path}, then join again") from None

    def remember(self, membership: Membership) -> None:
        write_secret(self.folder / "joined.json", membership.model_dump_json())

    def forget(self) -> None:
        (self.folder / "joined.json").unlink(missing_ok=True)

    def is_joined_now(self) -> bool:
        """Whether runs that start here go to the host: an agent is at work here, or the host itself is."""
        return self.membership() is not None and any(_is_held(self.folder / name) for name in (_AGENT, _HOST))

    def has_agent(self) -> bool:
        return _is_held(self.folder / _AGENT)

    @contextmanager
    def only_agent(self, wait_s: float = 0.0) -> Iterator[None]:
        """Be this machine's agent, the only one; the one before may still be on its way out."""
        with _held(self.folder / _AGENT, wait_s) as is_mine:
            if not is_mine:
                raise MeetingError(
                    "this machine is joined already, in another terminal",
                    fix="leave it there with Ctrl-C first; see who is here with: potluck status",
                )
            yield

    @contextmanager
    def only_host(self) -> Iterator[None]:
        """Be this machine's host, the only one."""
        with _held(self.folder / _HOST) as is_mine:
            if not is_mine:
                raise MeetingError(
                    "this machine is a host already, in another terminal", fix="see who is here with: potluck status"
                )
            yield


@contextmanager
def _held(path: Path, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold a lock file while the block lasts; says whether nobody else does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + wait_s
    try:
        while not (is_mine := _take(lock)) and time.monotonic() < deadline:
            time.sleep(0.1)
        yield is_mine
    finally:
        os.close(lock)


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_held(path: Path) -> bool:
    if not path.is_file():
        return False
    with _held(path) as is_mine:
        return not is_mine
