"""One checkpoint file: an ordinary torch.save archive with its own SHA-256 in the archive's comment.

The checksum travels inside the file, so one rename makes both appear together, and a copied file stays checkable.
Anything that reads torch's format reads this one.
"""

import errno
import hashlib
import os
import struct
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from potluck.core.atomic import replacing
from potluck.core.errors import CheckpointError
from potluck.core.plain_file import open_plain, what_happened

_COMMENT = b"potluck sha256 "
_COMMENT_SIZE = len(_COMMENT) + 64
_LENGTH = struct.Struct("<H")  # the last field of a zip archive: how long the comment after it is
_CHUNK_BYTES = 1 << 20


def write_checkpoint(path: Path, state: dict[str, Any]) -> int:
    """Write the state so that the file is either whole or absent; return its size in bytes."""
    try:
        with replacing(path) as file:
            torch.save(state, file)
            _seal(file)
            return file.tell()
    except (OSError, RuntimeError) as error:  # torch turns a failed write into an error of its own
        cause = error if isinstance(error, OSError) else error.__context__
        reason = (cause.strerror if isinstance(cause, OSError) else None) or str(error).splitlines()[0]
        fix = f"check that {path.parent} can be written"
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            fix = f"free space on the disk that holds {path.parent}, then go on with --resume"
        raise CheckpointError(f"{path} cannot be written: {reason}", fix=fix) from error


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The state in an undamaged file. Reads only tensors and plain data, so that a file cannot run code."""
    check_whole(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds here, all of them mean the same
        raise CheckpointError(
            f"{path} does not hold a Potluck checkpoint: {str(error).splitlines()[0]}",
            fix="choose a file from the checkpoints folder of a run",
        ) from error
    if not isinstance(state, dict):
        raise CheckpointError(
            f"{path} does not hold a run's state", fix="choose a file from a run's checkpoints folder"
        )
    return state


def check_whole(path: Path) -> None:
    """Raise CheckpointError unless the file matches its checksum."""
    try:
        with open_plain(path) as file:
            damage = _damage(file)
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}", fix="check the path") from None
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {what_happened(error)}",
            fix="use an older checkpoint; --resume finds the newest whole one",
        ) from None
    if damage:
        raise CheckpointError(f"{path} is {damage}", fix="use an older checkpoint; --resume finds the newest whole one")


def plain(state: Any, where: str = "state") -> Any:
    """A copy on the CPU, to be written while training goes on; refuses anything but tensors and plain data."""
    match state:
        case Tensor():
            return state.detach().to("cpu", copy=True)
        case dict():
            return {plain(key, where): plain(value, f"{where}[{key!r}]") for key, value in state.items()}
        case list() | tuple() if type(state) in (list, tuple):
            return type(state)(plain(value, f"{where}[{index}]") for index, value in enumerate(state))
        case bool() | str() | None:
            return state
        case int() | float():  # numpy's float64 is a float too, but read_checkpoint would refuse it
            return int(state) if isinstance(state, int) else float(state)
    raise CheckpointError(
        f"{where} is a {type(state).__name__}, which a checkpoint cannot hold",
        fix="make state_dict() return tensors, numbers, strings, lists and dicts only",
    )


def _seal(file: IO[bytes]) -> None:
    digest = _digest(file, end=file.seek(0, os.SEEK_END))
    file.seek(-_LENGTH.size, os.SEEK_END)
    file.write(_LENGTH.pack(_COMMENT_SIZE) + _COMMENT + digest.encode())


def _damage(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    end = size - _COMMENT_SIZE
    if end < _LENGTH.size:
        return "cut short"
    file.seek(end - _LENGTH.size)
    tail = file.read()
    sealed = tail.startswith(_LENGTH.pack(_COMMENT_SIZE) + _COMMENT)
    if not sealed:
        return "cut short, or was not written by Potluck"
    # The checksum covers the archive as torch wrote it, with an empty comment.
    whole = _digest(file, end=end - _LENGTH.size, then=_LENGTH.pack(0)) == tail[-64:].decode("ascii", "replace")
    return "" if whole else "damaged: its checksum does not match"


def _digest(file: IO[bytes], *, end: int, then: bytes = b"") -> str:
    digest = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(min(_CHUNK_BYTES, end - file.tell())):
        digest.update(chunk)
    digest.update(then)
    return digest.hexdigest()
