"""Checkpoint files on their way to a run that begins with one: sent to the host in parts, kept there by their hash."""

import shutil
from pathlib import Path

from potluck.core.errors import MeetingError, ShippingError
from potluck.core.run_folder import RunFolder
from potluck.meeting.transfer.arrivals import CheckpointPart, receive_part

FIRST_NAME = "model_epoch_0.pth"
"""The file's name in the run's folder: every checkpoint that the run writes is newer by its name."""
MOST_BYTES = 64 << 30
_KEEP = 2


class ArrivedStates:
    """The host's side: files that have arrived, of which the last few are kept until a run takes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def receive(self, part: CheckpointPart, data: bytes) -> int:
        """Take one part; returns how many bytes the host has, and 0 if the whole did not match its hash."""
        if part.total > MOST_BYTES:
            raise ShippingError(
                f"a checkpoint of {part.total / 1e9:,.1f} GB is not taken: {MOST_BYTES >> 30} GiB are the most",
                fix="copy the file to every machine, and train a script that calls potluck.start(resume_from=...)",
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = self._file(part.sha256)
        others = sorted((one for one in self._folder.iterdir() if part.sha256 not in one.name), key=_age)
        for old in others[: 1 - _KEEP]:
            old.unlink(missing_ok=True)
        return receive_part(kept, self._folder / f".{part.sha256}.part", part, data)

    def check(self, sha256: str) -> None:
        """Raise unless the file has arrived and is an undamaged checkpoint."""
        from potluck.engine.checkpoints.checkpoint_file import check_whole  # noqa: PLC0415  imports torch

        if not self._file(sha256).is_file():
            raise MeetingError("the host does not have the file of --resume-from", fix="start the run again")
        check_whole(self._file(sha256))

    def place(self, sha256: str, folder: RunFolder) -> None:
        """Make the file the run's first checkpoint."""
        kept = self._file(sha256)
        folder.checkpoints_dir.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kept, folder.checkpoints_dir / f".{FIRST_NAME}.tmp")
        (folder.checkpoints_dir / f".{FIRST_NAME}.tmp").replace(folder.checkpoints_dir / FIRST_NAME)
        kept.unlink()

    def _file(self, sha256: str) -> Path:
        return self._folder / f"{sha256}.pth"


def _age(path: Path) -> float:
    return path.stat().st_mtime
