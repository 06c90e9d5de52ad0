"""Sends one run's files from this machine to the host. Used by the delivering thread only."""

import json
from collections.abc import Callable
from pathlib import Path

from potluck.core.errors import MeetingError, ShippingError
from potluck.core.run_folder import RunFolder
from potluck.meeting.client.checkpoint_upload import CheckpointUpload
from potluck.meeting.client.client import HostClient, HostSilentError, NotAdmittedError
from potluck.meeting.transfer.shipping import Shipper


class RunDelivery:
    """Sends events, logs and checkpoints of a run, a part at a time."""

    def __init__(self, run: str, folder: Path, machine: str, tell: Callable[[str], None]) -> None:
        self._run = run
        self._folder = folder
        self._machine = machine
        self._tell = tell
        self._shipper: Shipper | None = None
        self._told: set[str] = set()
        """Files that cannot be sent, of which this machine's terminal has told."""
        self._upload = CheckpointUpload(RunFolder(folder))

    def advance(self, client: HostClient) -> bool:
        """Send some of the new bytes; returns whether there are more."""
        if self._shipper is None:
            self._shipper = Shipper(
                self._folder, lambda *delivery: self._send(client, *delivery), machine=self._machine
            )
        remaining = self._shipper.ship()
        for name, refused in self._shipper.refused.items():
            if name not in self._told:
                self._told.add(name)
                self._tell(f"{name} of run {self._run} stays here: {refused.args[0]}")
        try:
            is_uploading = self._upload.advance(client, self._run)
        except (HostSilentError, NotAdmittedError):
            raise
        except MeetingError as error:
            self._tell(f"a checkpoint of run {self._run} stays here: {error.args[0]}")
            is_uploading = False
        return bool(remaining) or is_uploading

    def _send(self, client: HostClient, file_name: str, offset: int, data: bytes) -> int:
        try:
            answer = client.send("POST", f"/runs/{self._run}/files?file={file_name}&offset={offset}", data)
        except (HostSilentError, NotAdmittedError):
            raise
        except MeetingError as error:
            raise ShippingError(str(error.args[0]), fix=error.fix) from error
        return int(json.loads(answer)["size"])
