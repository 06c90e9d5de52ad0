"""Copies the newest checkpoints of the host's runs to this machine, in a thread of its own.

A checkpoint may take minutes on a slow network; the host's state and the runs' events must not wait for it.
"""

import threading
from collections.abc import Callable

from potluck.core.atomic import replacing
from potluck.core.disk import as_disk_error
from potluck.core.errors import PotluckError
from potluck.core.run_folder import RunFolder
from potluck.meeting.client.client import HostClient, HostSilentError
from potluck.meeting.home import HostMembership
from potluck.meeting.succession.state_copy import CheckpointName
from potluck.meeting.transfer.arrivals import keep_newest_checkpoints

_AGAIN_S = 1.0
_SILENCE_S = 60.0
_KEPT_CHECKPOINTS = 2  # in case the newest is damaged


class CheckpointMirror(threading.Thread):
    """Has the newest checkpoint of each run that is wanted, until `is_over`."""

    def __init__(self, membership: HostMembership, tell: Callable[[str], None], is_over: threading.Event) -> None:
        super().__init__(name="potluck-mirror-checkpoints", daemon=True)
        self._membership = membership
        self._tell = tell
        self._is_over = is_over
        self._lock = threading.Lock()
        self._wanted: dict[str, tuple[RunFolder, CheckpointName]] = {}
        self._had: dict[str, CheckpointName] = {}

    def want(self, run: str, folder: RunFolder, newest: CheckpointName) -> None:
        """This is the newest checkpoint of a run on the host, and its folder here."""
        with self._lock:
            self._wanted[run] = folder, newest

    def run(self) -> None:
        """Fetch what is wanted and not here, one after the other."""
        told = ""
        while not self._is_over.wait(_AGAIN_S):
            with self._lock:
                wanted = dict(self._wanted)
            for run, (folder, newest) in wanted.items():
                if self._had.get(run) == newest or self._is_over.is_set():
                    continue
                try:
                    self._fetch(run, folder, newest)
                except HostSilentError:
                    continue
                except (PotluckError, OSError) as error:
                    if str(error) != told and not self._is_over.is_set():
                        told = str(error)
                        self._tell(f"{newest.name} of run {run} is not copied: {as_disk_error(error) or error}")

    def _fetch(self, run: str, folder: RunFolder, newest: CheckpointName) -> None:
        here = folder.checkpoints_dir / newest.name
        if not here.exists() or here.stat().st_size != newest.size:
            with HostClient.of(self._membership, timeout_s=_SILENCE_S) as client, replacing(here) as file:
                headers = client.fetch_into(f"/runs/{run}/checkpoint", file, self._is_over.is_set)
                if newest.name not in headers.get("content-disposition", "") or file.tell() != newest.size:
                    raise HostSilentError("a newer checkpoint has come", fix="next time")
            keep_newest_checkpoints(folder.checkpoints_dir, here, _KEPT_CHECKPOINTS)
        self._had[run] = newest
