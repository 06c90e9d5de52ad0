"""A data archive on disk: downloaded once, its checksum verified, its members read by exact name."""

import hashlib
import json
import logging
import sys
import tarfile
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.request import urlopen
from uuid import uuid4

from potluck.core.errors import DataError
from potluck.core.shell_words import quote

NETWORK_TIMEOUT_S = 20.0
BLOCK = 1 << 20
_TELL_EVERY_S = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A .tar.gz published at an address, with the checksum its bytes must have."""

    name: str
    base_url: str
    sha256: str
    num_bytes: int
    instead: str
    """The dataset to suggest when the archive cannot be downloaded."""

    @property
    def url(self) -> str:
        return self.base_url + self.name


def read_members(archive: Archive, data_dir: Path, members: Mapping[str, int]) -> dict[str, bytearray]:
    """The named members, each of exactly the given size.

    The members come from a folder extracted next to the archive if there is one, else from the archive itself, which is
    downloaded if it is missing. Only the archive is written to disk, and a note that its checksum was verified.
    """
    data_dir = data_dir.expanduser().resolve()
    if all((data_dir / name).is_file() for name in members):
        return {name: _read_extracted(data_dir / name, size) for name, size in members.items()}
    path = data_dir / archive.name
    if path.is_file():
        _verify(archive, path)
    else:
        _download(archive, path)
    return _read_archive(archive, path, members)


def _read_extracted(file: Path, size: int) -> bytearray:
    try:
        content = bytearray(file.read_bytes())
    except OSError as error:
        raise DataError(
            f"cannot read {file}: {error.strerror}", fix=f"check that you may read it: ls -l {file}"
        ) from error
    if len(content) != size:
        raise DataError(
            f"{file} is damaged: it has {len(content)} bytes instead of {size}",
            fix=f"delete the folder and start again: rm -r {quote(file.parent)}",
        )
    return content


def _read_archive(archive: Archive, path: Path, members: Mapping[str, int]) -> dict[str, bytearray]:
    found: dict[str, bytearray] = {}
    try:
        # Members are read without extracting them: no name in the archive ever becomes a path on this machine.
        with tarfile.open(path, "r:gz") as tar:
            for member in tar:
                content = tar.extractfile(member) if members.get(member.name) == member.size else None
                if content is not None:
                    found[member.name] = bytearray(content.read())
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise _damaged(archive, path, str(error)) from error
    missing = [name for name in members if len(found.get(name, b"")) != members[name]]
    if missing:
        raise _damaged(archive, path, f"it lacks {missing[0]} of {members[missing[0]]} bytes")
    return found


def _verify(archive: Archive, path: Path) -> None:
    """Check the checksum of an archive on disk once: the result holds until the file's size or time changes."""
    if _remembered(path) == _identity(archive, path):
        return
    fault = _fault(archive, path)
    if fault is not None:
        raise _damaged(archive, path, fault)
    _remember(archive, path)


def _fault(archive: Archive, path: Path) -> str | None:
    """Why this file's bytes are not those of the archive; None if they are."""
    num_bytes = path.stat().st_size
    if num_bytes != archive.num_bytes:
        return f"it has {num_bytes} bytes instead of {archive.num_bytes}"
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    if digest.hexdigest() != archive.sha256:
        return f"its sha256 is {digest.hexdigest()} instead of {archive.sha256}"
    return None


def _identity(archive: Archive, path: Path) -> dict[str, str | int]:
    status = path.stat()
    return {"sha256": archive.sha256, "num_bytes": status.st_size, "modified_ns": status.st_mtime_ns}


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def _remember(archive: Archive, path: Path) -> None:
    try:
        _note(path).write_text(json.dumps(_identity(archive, path)))
    except OSError:
        logger.debug("%s is read-only: its archive is checked at every start", path.parent)


def _remembered(path: Path) -> object:
    try:
        return json.loads(_note(path).read_text())
    except (OSError, ValueError):
        return None


def _download(archive: Archive, path: Path) -> None:
    """Download the archive under a temporary name, and give it its own name once it is verified."""
    part = _temporary(path)
    try:
        with part.open("wb") as file, urlopen(archive.url, timeout=NETWORK_TIMEOUT_S) as response:  # noqa: S310 - the address is ours
            _copy(response, file, archive, path)
        fault = _fault(archive, part)
        if fault is not None:
            raise _absent(archive, path, f"{archive.url} gave something else: {fault}")
        part.replace(path)
    except (OSError, HTTPException) as error:
        raise _absent(archive, path, f"{archive.url}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    sys.stderr.write(f"downloaded {path.name}\n")
    _remember(archive, path)


def _copy(source: IO[bytes], target: IO[bytes], archive: Archive, path: Path) -> None:
    """Copy a download, and say to stderr how far it is: on a joined machine its lines go to the run's display."""
    name, size_mb, written, told_at = path.name, archive.num_bytes // 1_000_000, 0, float("-inf")
    while block := source.read(BLOCK):
        if time.monotonic() - told_at >= _TELL_EVERY_S:
            told_at = time.monotonic()
            done = 100 * written // max(1, archive.num_bytes)
            sys.stderr.write(f"downloading {name} ({size_mb} MB) to {path.parent.absolute()}: {done} %\n")
            sys.stderr.flush()
        target.write(block)
        written += len(block)


def _temporary(path: Path) -> Path:
    """A new file next to the path, with a unique name: several workers may share the folder."""
    part = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
    except OSError as error:
        raise DataError(
            f"cannot keep data in {path.parent}: {error.strerror}",
            fix="name a folder you may write to: --data-dir FOLDER",
        ) from error
    return part


def _absent(archive: Archive, path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} is missing and cannot be downloaded: {reason}",
        fix=f"on a machine with network, type: curl -LO {archive.url} ; put the file at {path} ; "
        f"or train without it: --dataset {archive.instead}",
    )


def _damaged(archive: Archive, path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} is damaged: {reason}",
        fix=f"fetch it again: rm -f {quote(path)} && curl -L -o {quote(path)} {archive.url}",
    )
