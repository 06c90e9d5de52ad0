"""What a machine needs before a run's workers can start: a folder, a state to go on from, a script and its packages."""

import re
import shutil
import time
from pathlib import Path

from potluck.core.atomic import replacing, write_text
from potluck.core.errors import MeetingError
from potluck.core.run_folder import RunFolder
from potluck.meeting.bundle import BundleCache, unpack
from potluck.meeting.client import HostClient
from potluck.meeting.home import Home, Membership
from potluck.meeting.packages import missing_packages, to_install
from potluck.meeting.wire import Assignment

_FETCH_S = 60.0
_FILE_NAME = re.compile(r'filename="(model_epoch_\d+(?:_step_\d+)?\.pth)"')


def claim_folder(folder: Path, run_id: str, *, is_resumed: bool) -> None:
    """Make the run's folder here; one that another run of that name has left is put aside."""
    marker = folder / ".run-id"
    if folder.is_dir() and not is_resumed and (not marker.is_file() or marker.read_text() != run_id):
        folder.rename(folder.with_name(f".{folder.name}.until-{time.time_ns()}"))
    folder.mkdir(parents=True, exist_ok=True)
    write_text(marker, run_id)


def fetch_checkpoint(membership: Membership, folder: RunFolder) -> None:
    """The host's newest checkpoint; the other machines are healed from here."""
    with HostClient.of(membership, timeout_s=_FETCH_S) as client:
        content, headers = client.fetch(f"/runs/{folder.name}/checkpoint")
    name = _FILE_NAME.search(headers.get("content-disposition", ""))
    if name is None:
        raise MeetingError("the host sends a checkpoint without a name", fix="use the same potluck on both machines")
    with replacing(folder.checkpoints_dir / name[1]) as file:
        file.write(content)


def fetch_script(membership: Membership, home: Home, assignment: Assignment) -> Path:
    """The script's folder, from the cache or from the host, if this machine has what it imports."""
    task = assignment.task
    assert task.bundle is not None
    cache = BundleCache(home.bundles_dir)
    data = cache.get(task.bundle)
    if data is None:
        with HostClient.of(membership, timeout_s=_FETCH_S) as client:
            data = client.send("GET", f"/bundles/{task.bundle}")
        cache.put(task.bundle, data)
    place = home.folder.absolute() / "scripts" / assignment.run
    shutil.rmtree(place, ignore_errors=True)  # of an earlier start: every start gets what was packed
    unpack(data, task.bundle, place)
    missing = missing_packages(place, Path(task.entry))
    if missing:
        raise MeetingError(
            f"{membership.machine} does not have {', '.join(missing)}, which {task.entry} imports",
            fix=f"on {membership.machine}: pip install {' '.join(to_install(missing))}",
        )
    return place
