"""Sends a checkpoint file to the host, for a run that begins with it."""

import hashlib
import json
from pathlib import Path

from potluck.core.errors import MeetingError
from potluck.meeting.client.client import HostClient
from potluck.meeting.transfer.arrivals import PART_BYTES

_TRIES = 3
_READ_BYTES = 1 << 20


def send_state(client: HostClient, path: Path) -> str:
    """Send a checkpoint file to the host; returns its hash. What an earlier, interrupted upload left is not resent."""
    total, offset, tries = path.stat().st_size, 0, 0
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
        sha256 = digest.hexdigest()
        while offset < total:
            file.seek(offset)
            query = f"offset={offset}&total={total}&sha256={sha256}"
            answer = client.send("PUT", f"/states?{query}", file.read(PART_BYTES))
            arrived = int(json.loads(answer)["size"])
            tries += arrived <= offset  # it arrived damaged, or another upload of the file was ahead
            if tries > _TRIES:
                raise MeetingError(
                    f"the host has not received {path} whole after {_TRIES} tries",
                    fix="see that no program writes the file, then type the command again",
                )
            offset = arrived
    return sha256
