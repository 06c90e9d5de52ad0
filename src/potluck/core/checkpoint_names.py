"""The names of checkpoint files: model_epoch_<n>.pth, and model_epoch_<n>_step_<m>.pth within an epoch."""

import re
from pathlib import Path

_NAME = re.compile(r"model_epoch_(\d{1,9})(?:_step_(\d{1,12}))?\.pth")


def checkpoint_name(epoch: int, step: int, *, epoch_is_complete: bool) -> str:
    """A checkpoint's file name: epochs count from 1; a mid-epoch name also holds the number of committed steps."""
    return f"model_epoch_{epoch}.pth" if epoch_is_complete else f"model_epoch_{epoch}_step_{step}.pth"


def is_checkpoint_name(name: str) -> bool:
    """Whether a file of this name counts as a checkpoint."""
    return _NAME.fullmatch(name) is not None


def checkpoint_files(folder: Path) -> list[Path]:
    """All checkpoints, newest training state first."""
    found = [(match, path) for path in folder.glob("*.pth") if (match := _NAME.fullmatch(path.name))]

    def age(item: tuple[re.Match[str], Path]) -> tuple[int, float]:
        epoch, step = item[0].groups()
        # The checkpoint at the end of an epoch is newer than all others of that epoch.
        return (int(epoch), float("inf") if step is None else int(step))

    return [path for _, path in sorted(found, key=age, reverse=True)]
