"""Checkpoints that other machines have written come home, in parts, and count only when they are whole."""

import hashlib
import os
import re
from pathlib import Path

from potluck.core.atomic import sync_folder
from potluck.core.errors import ShippingError
from potluck.core.run_folder import RunFolder

PART_BYTES = 4 << 20
_NAME = re.compile(r"model_epoch_\d{1,9}(_step_\d{1,12})?\.pth")
_READ_BYTES = 1 << 20


def receive_checkpoint(
    folder: RunFolder, machine: str, name: str, offset: int, total: int, sha256: str, data: bytes, keep: int
) -> int:
    """Take one part; returns how much is there. The last part makes it a checkpoint, if the checksum agrees."""
    if not _NAME.fullmatch(name):
        raise ShippingError(f"{name!r} is not the name of a checkpoint", fix="use the same potluck on every machine")
    final = folder.checkpoints_dir / name
    if final.is_file() and final.stat().st_size == total and _digest(final) == sha256:
        return total
    folder.checkpoints_dir.mkdir(parents=True, exist_ok=True)
    # A name that no reader takes for a checkpoint, and that another machine's part of the same one does not share.
    part = folder.checkpoints_dir / f".{name}.{machine}.{sha256[:16]}.part"
    with part.open("ab") as file:
        size = file.tell()
        if offset == size:
            file.write(data)
            size = file.tell()
        if size == total:
            file.flush()
            os.fsync(file.fileno())
    if size < total:
        return size
    if size > total or _digest(part) != sha256:
        part.unlink()
        raise ShippingError(f"{name} arrived damaged from {machine}", fix="nothing: it is sent again")
    part.replace(final)
    sync_folder(folder.checkpoints_dir)
    _keep_newest(folder.checkpoints_dir, final, keep)
    return total


def newest_checkpoint(folder: RunFolder) -> Path | None:
    """The newest whole one that the host has."""
    from potluck.engine.checkpoints import newest_whole  # noqa: PLC0415  imports torch

    return newest_whole(folder.checkpoints_dir, lambda _: None)


def _keep_newest(folder: Path, newest: Path, keep: int) -> None:
    from potluck.engine.checkpoints import checkpoint_files  # noqa: PLC0415  imports torch

    files = checkpoint_files(folder)
    for old in files[files.index(newest) + keep :]:
        old.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
