"""The host's side of checkpoint uploads: parts arrive in order, and a checkpoint counts only when it is complete."""

import hashlib
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from potluck.core.atomic import sync_folder
from potluck.core.checkpoint_names import checkpoint_files, is_checkpoint_name
from potluck.core.disk import named
from potluck.core.errors import ShippingError
from potluck.core.run_folder import RunFolder
from potluck.meeting.wire import Digest

PART_BYTES = 4 << 20
_READ_BYTES = 1 << 20


class CheckpointPart(BaseModel):
    """Where a part begins, and the size and hash of the whole checkpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    offset: int = Field(ge=0)
    total: int = Field(ge=0)
    sha256: Digest


def receive_checkpoint(folder: RunFolder, source: str, part: CheckpointPart, data: bytes, keep: int) -> int:
    """Take one part of <machine>-<name>; returns how many bytes the host has.

    The last part makes the file a checkpoint. If its hash is wrong, the file is deleted, and 0 is returned.
    """
    name = source.rpartition("-")[2]
    if not is_checkpoint_name(name) or name == source:
        raise ShippingError(f"{source!r} does not name a checkpoint", fix="use the same potluck on every machine")
    final = folder.checkpoints_dir / name
    folder.checkpoints_dir.mkdir(parents=True, exist_ok=True)
    # No reader takes this name for a checkpoint, and an upload of the same checkpoint by another machine has another.
    size = receive_part(final, folder.checkpoints_dir / f".{source}.{part.sha256[:16]}.part", part, data)
    if size == part.total:
        keep_newest_checkpoints(folder.checkpoints_dir, final, keep)
    return size


def receive_part(final: Path, arriving: Path, part: CheckpointPart, data: bytes) -> int:
    """Append a part to the file `arriving`, which becomes `final` when it is whole; returns how many bytes are here."""
    if final.is_file() and final.stat().st_size == part.total and _digest(final) == part.sha256:
        return part.total
    try:
        size = _append(arriving, part, data)
    except OSError as error:
        raise named(error, final) from None
    if size < part.total:
        return size
    if size > part.total or _digest(arriving) != part.sha256:
        arriving.unlink()
        return 0
    arriving.replace(final)
    sync_folder(final.parent)
    return part.total


def _append(arriving: Path, part: CheckpointPart, data: bytes) -> int:
    """Append the part if it begins where the file ends; returns the file's size."""
    with arriving.open("ab", buffering=0) as file:  # unbuffered: bytes written before the disk was full count
        size = file.tell()
        if part.offset == size:
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
            size = file.tell()
        if size == part.total:
            os.fsync(file.fileno())
    return size


def newest_checkpoint(folder: RunFolder) -> Path | None:
    """The newest undamaged checkpoint that the host has."""
    from potluck.engine.checkpoints.checkpoints import newest_whole  # noqa: PLC0415  imports torch

    return newest_whole(folder.checkpoints_dir, lambda _: None)


def keep_newest_checkpoints(folder: Path, newest: Path, keep: int) -> None:
    """Delete checkpoints that are older than the `keep` newest, counted from one that has just arrived."""
    files = checkpoint_files(folder)
    for old in files[files.index(newest) + keep :]:
        old.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
