"""Tunings on disk, beside the profiles: one for each (machine, device, model, precision)."""

from pathlib import Path

import msgspec

from potluck.core.atomic import write_text
from potluck.core.plain_file import read_plain
from potluck.measuring.profile_store import profile_file
from potluck.measuring.tuning import Tuning


class KeptTuning(msgspec.Struct, frozen=True):
    """A tuning, and the version of torch that it was found with: another one may be faster in other ways."""

    torch: str
    tuning: Tuning


def tuning_file(home: Path, machine: str, device: str, model: str, precision: str) -> Path:
    """The path of a tuning's file."""
    return profile_file(home, machine, device, model, precision).with_suffix(".tuning")


def keep_tuning(path: Path, torch_version: str, tuning: Tuning) -> None:
    """Write a tuning in place of an older one."""
    write_text(path, msgspec.json.encode(KeptTuning(str(torch_version), tuning)).decode() + "\n")


def find_tuning_file(path: Path, torch_version: str) -> Tuning | None:
    """The tuning that was kept there; None if there is none, if it cannot be read, or if torch has changed."""
    try:
        kept = msgspec.json.decode(read_plain(path), type=KeptTuning)
    except (OSError, msgspec.MsgspecError):  # it is found again in seconds
        return None
    return kept.tuning if kept.torch == torch_version else None
