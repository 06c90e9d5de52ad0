"""A copy of the host's state on a machine that may take its place: encrypted with that machine's own key.

The copy holds what the host's folder holds: the roster, the records of runs, the token. Files of runs, bundles and
lists of shared folders are copied as they are, into the folders where a host keeps them.
"""

import json
import secrets
import time
from pathlib import Path

from pydantic import Field, ValidationError

from potluck.core.atomic import replacing
from potluck.core.plain_file import read_plain
from potluck.gates.identity import Identity
from potluck.meeting.wire import Digest, Name, WireMessage

_FILE = "state.sealed"
_NONCE_BYTES = 12
_TRY_S = 1.0
_TRIED_BYTES = 1 << 16
_PURPOSE = b"potluck-state-copy-1"


class CheckpointName(WireMessage):
    """The newest checkpoint in a run's folder on the host."""

    name: str
    size: int
    changed_ns: int


class RunCopy(WireMessage):
    """A run's record, and what a successor needs of its folder."""

    record: str
    """JSON of the host's RunRecord."""


class StateRequest(WireMessage):
    """Asks for the host's state; `known` is the rank of the copy that the machine has on its disk."""

    known: int = Field(ge=0)


class HostStateCopy(WireMessage):
    """The host's state, as it is sent to a successor."""

    term: int
    number: int
    """Counts changes, also over a host's starts; with the term before it in `rank` it says which copy is newer."""
    roster: str
    runs: dict[Name, RunCopy]
    token: str
    bundles: list[Digest] = Field(default=[])
    catalogues: list[Digest] = Field(default=[])

    @property
    def rank(self) -> int:
        """A number that grows with every change, also from one host to the next."""
        return (self.term << 44) + self.number


class StateAnswer(WireMessage):
    """Answer to StateRequest: the state if it has changed, and the sizes of the files of unfinished runs."""

    state: HostStateCopy | None = None
    files: dict[Name, dict[str, int]] = Field(default={})
    """By run: names and sizes of its event, log and trace files."""
    checkpoints: dict[Name, CheckpointName] = Field(default={})


class KeptCopy:
    """The copy on this machine's disk."""

    def __init__(self, folder: Path, identity: Identity) -> None:
        self._path = folder / _FILE
        self._identity = identity
        self._try_at = 0.0
        self.state = self._read()

    @property
    def block(self) -> str | None:
        """The block of addresses of the cluster that the copy is of; None if there is no copy."""
        return None if self.state is None else str(json.loads(self.state.roster)["block"])

    @property
    def rank(self) -> int:
        """0 if there is no copy."""
        return 0 if self.state is None else self.state.rank

    def keep(self, state: HostStateCopy) -> None:
        """Encrypt the copy, and write it to the disk."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = AESGCM(self._key()).encrypt(nonce, state.model_dump_json().encode(), _PURPOSE)
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(self._path) as file:
            file.write(nonce + sealed)
        self.state = state

    def try_disk(self) -> None:
        """Write a new file beside the copy, and remove it; OSError if the disk is full or read-only."""
        now, probe = time.monotonic(), self._path.with_name("disk-probe")
        if now < self._try_at:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            probe.write_bytes(bytes(_TRIED_BYTES))
        finally:
            probe.unlink(missing_ok=True)
        self._try_at = now + _TRY_S

    def forget(self) -> None:
        self.state = None
        self._path.unlink(missing_ok=True)

    def _read(self) -> HostStateCopy | None:
        """The copy; None if there is none, or if it is damaged: a new one is fetched from the host."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        try:
            content = read_plain(self._path)
            opened = AESGCM(self._key()).decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], _PURPOSE)
            return HostStateCopy.model_validate_json(opened)
        except (OSError, ValueError, InvalidTag, ValidationError):
            return None

    def _key(self) -> bytes:
        """A key that follows from this machine's private key: a copy of the file alone says nothing."""
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

        private = read_plain(self._identity.key_file)
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(private)
