"""Fetches a run's newest checkpoint from the host, which may be larger than memory."""

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from potluck.core.atomic import replacing
from potluck.core.checkpoint_names import is_checkpoint_name
from potluck.core.errors import MeetingError
from potluck.core.run_folder import RunFolder
from potluck.meeting.client.client import HostClient
from potluck.meeting.home import HostMembership

_SILENCE_S = 60.0  # the host checks a checkpoint before it gives it


def fetch_newest(membership: HostMembership, run: str, folder: RunFolder, is_over: Callable[[], bool] = bool) -> Path:
    """The newest whole checkpoint that the host has of this run, now in `folder`; until `is_over`."""
    place = folder.checkpoints_dir

    def open_here(name: str) -> AbstractContextManager[IO[bytes]]:
        if not is_checkpoint_name(name):
            raise MeetingError(
                "the host sends a checkpoint without a name", fix="use the same potluck on both machines"
            )
        return replacing(place / name)

    with HostClient.of(membership, timeout_s=_SILENCE_S) as client:
        return place / client.fetch_into(f"/runs/{run}/checkpoint", open_here, is_over)


def check_room(place: Path, size: int) -> None:
    """Raise OSError, as a write would, if a file of this size does not fit: an attempt would fill the disk."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(place.parent).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place))
