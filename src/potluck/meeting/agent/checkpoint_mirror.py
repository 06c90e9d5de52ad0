"""Copies the newest checkpoints of the host's runs to this machine, in a thread of its own.

A checkpoint may take minutes on a slow network; the host's state and the runs' events must not wait for it.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

from potluck.core.disk import as_disk_error
from potluck.core.errors import PotluckError
from potluck.core.run_folder import RunFolder
from potluck.meeting.client.checkpoint_fetch import check_room, fetch_newest
from potluck.meeting.client.client import HostSilentError
from potluck.meeting.home import HostMembership
from potluck.meeting.succession.state_copy import CheckpointName
from potluck.meeting.transfer.arrivals import keep_newest_checkpoints

Wanted: TypeAlias = Mapping[str, tuple[RunFolder, CheckpointName]]
"""By run: its folder on this machine, and the newest checkpoint on the host."""
_LOOK_S = 1.0
_SILENT_S = 5.0
_FAILED_S = 60.0  # what a full disk or a refusal has ended
_KEPT_CHECKPOINTS = 2  # in case the newest is damaged


class CheckpointMirror(threading.Thread):
    """Has the newest checkpoint of each run that is wanted, until `is_over`."""

    def __init__(self, membership: HostMembership, tell: Callable[[str], None], is_over: threading.Event) -> None:
        super().__init__(name="potluck-mirror-checkpoints", daemon=True)
        self._membership = membership
        self._tell = tell
        self._is_over = is_over
        self._wanted: Wanted = {}
        self._had: dict[str, CheckpointName] = {}
        self._again_at: dict[str, float] = {}
        self._told: dict[str, str] = {}

    def want(self, wanted: Wanted) -> None:
        """These are the newest checkpoints on the host; replaced as a whole, so that the thread needs no lock."""
        self._wanted = wanted

    def run(self) -> None:
        """Fetch what is wanted and not here, one after the other."""
        while not self._is_over.wait(_LOOK_S):
            for run in list(self._wanted):
                wanted = self._wanted.get(run)  # as it is by now: the one before may have taken minutes
                if wanted is None or self._had.get(run) == wanted[1] or self._is_over.is_set():
                    continue
                if time.monotonic() >= self._again_at.get(run, 0.0):
                    self._try(run, *wanted)

    def _try(self, run: str, folder: RunFolder, newest: CheckpointName) -> None:
        try:
            self._fetch(run, folder, newest)
            self._had[run] = newest
            self._told.pop(run, None)
        except HostSilentError:
            self._again_at[run] = time.monotonic() + _SILENT_S
        except (PotluckError, OSError) as error:
            self._again_at[run] = time.monotonic() + _FAILED_S
            why = f"checkpoints of run {run} are not copied: {as_disk_error(error) or error}"
            if self._told.get(run) != why and not self._is_over.is_set():
                self._told[run] = why
                self._tell(why)

    def _fetch(self, run: str, folder: RunFolder, newest: CheckpointName) -> None:
        here = folder.checkpoints_dir / newest.name
        if here.exists() and here.stat().st_size == newest.size:
            return
        check_room(here, newest.size)
        came = fetch_newest(self._membership, run, folder, self._is_over.is_set)
        keep_newest_checkpoints(folder.checkpoints_dir, came, _KEPT_CHECKPOINTS)
