"""What a machine needs before a run's workers can start: a folder, maybe a checkpoint, a script and its packages."""

import shutil
import time
from pathlib import Path

from potluck.core.atomic import write_text
from potluck.core.disk import as_disk_error
from potluck.core.errors import MeetingError, PotluckError, SharingError
from potluck.core.pip_lines import pip_install
from potluck.core.run_folder import RunFolder
from potluck.core.run_variables import parse_variables
from potluck.meeting.agent.messages import AgentPlace, RunPrepared
from potluck.meeting.client.checkpoint_fetch import fetch_newest
from potluck.meeting.client.client import HostClient
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.succession.run_place import is_made_by_host
from potluck.meeting.transfer.bundle import BundleCache, unpack
from potluck.meeting.transfer.packages import missing_packages
from potluck.meeting.transfer.selection import check_entry, check_script
from potluck.meeting.wire import Assignment
from potluck.sharing.folders import WorkerFolder

_FETCH_S = 60.0
_LOOK_S = 0.05


def prepare(place: AgentPlace, assignment: Assignment, folder: Path) -> RunPrepared:
    """Claim the run's folder, and fetch the checkpoint and the script that the assignment asks for."""
    membership, working_folder, failure = place.membership, Path.cwd(), ""
    data: tuple[WorkerFolder, ...] = ()
    try:
        parse_variables(assignment.task.env_words)
        if assignment.runs_dir is None:
            is_known = assignment.is_resumed or is_made_by_host(place.home, folder)
            claim_folder(folder, assignment.run_id, is_resumed=is_known)
        if assignment.fetches_checkpoint:
            fetch_newest(membership, assignment.run, RunFolder(folder))  # the other machines heal from this one
        if assignment.task.settings is None:
            working_folder = fetch_script(membership, place.home, assignment)
        if assignment.task.data:
            data = _await_data(place, assignment, None if assignment.task.settings is not None else working_folder)
    except PotluckError as error:
        failure = str(error)
    except OSError as error:
        failure = f"{membership.machine}: {as_disk_error(error) or error}"
    return RunPrepared(
        run=assignment.run,
        start_number=assignment.start_number,
        working_folder=working_folder,
        data=data,
        failure=failure,
    )


def _await_data(place: AgentPlace, assignment: Assignment, working_folder: Path | None) -> tuple[WorkerFolder, ...]:
    """Wait until the files of the run's data can be seen; the agent's loop begins to share them."""
    deadline = time.monotonic() + _FETCH_S
    while assignment.run_id not in place.data:
        if time.monotonic() > deadline:
            raise MeetingError(
                f"{place.membership.machine} is not connected to the other machines, and cannot get the run's data",
                fix="potluck doctor",
            )
        time.sleep(_LOOK_S)
    try:
        return tuple(place.data[assignment.run_id].wait(working_folder))
    except SharingError as error:
        raise SharingError(f"{place.membership.machine}: {error.args[0]}", fix=error.fix) from None


def claim_folder(folder: Path, run_id: str, *, is_resumed: bool) -> None:
    """Make the run's folder here; a folder that another run of the same name has left is renamed."""
    marker = folder / ".run-id"
    if folder.is_dir() and not is_resumed and (not marker.is_file() or marker.read_bytes() != run_id.encode()):
        folder.rename(_set_aside(folder))
    folder.mkdir(parents=True, exist_ok=True)
    write_text(marker, run_id)


def _set_aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.until-{time.time_ns()}")


def fetch_script(membership: HostMembership, home: Home, assignment: Assignment) -> Path:
    """Unpack the script's bundle from the cache or the host; raises if a package that the script imports is missing."""
    task = check_script(assignment.task)
    assert task.bundle is not None
    cache = BundleCache(home.bundles_dir)
    data = cache.get(task.bundle)
    if data is None:
        with HostClient.of(membership, timeout_s=_FETCH_S) as client:
            data = client.send("GET", f"/bundles/{task.bundle}")
        cache.put(task.bundle, data)
    place = home.folder.absolute() / "scripts" / assignment.run
    if assignment.plain is not None and place.is_dir():
        place.rename(_set_aside(place))  # another run of this name has left what its script saved
    shutil.rmtree(place, ignore_errors=True)  # from an earlier start: every start gets the files as packed
    unpack(data, task.bundle, place)
    check_entry(place, Path(task.entry))
    missing = missing_packages(place, Path(task.entry))
    if missing:
        to_install = [task.requirements.get(package, package) for package in missing]
        raise MeetingError(
            f"{membership.machine} does not have {', '.join(missing)}, which {task.entry} imports",
            fix=f"on {membership.machine}: {pip_install(*to_install)}",
        )
    return place
