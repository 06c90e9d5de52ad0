"""Every run's record on the host's disk, and the lock in a run's folder that marks the run as in progress."""

from pathlib import Path

from pydantic import ValidationError

from potluck.core.atomic import write_secret
from potluck.core.errors import MeetingError
from potluck.core.plain_file import read_plain
from potluck.core.run_end import RunEnd, write_end
from potluck.core.run_folder import RunFolder
from potluck.core.shell_words import quote
from potluck.events.alive import HostLocks
from potluck.meeting.host.pausing import go_on
from potluck.meeting.host.runs import RunRecord
from potluck.meeting.host.troubles import Troubles


class RunFiles:
    """Saves records; a record that could not be written is kept in memory, and retried by `save_again`."""

    def __init__(self, folder: Path, troubles: Troubles) -> None:
        self._folder = folder
        self._troubles = troubles
        self._unsaved: dict[str, RunRecord] = {}
        self.locks = HostLocks()

    def load(self) -> dict[str, RunRecord]:
        """The records of all runs of this host; paused runs are continued."""
        records = [go_on(record) for record in self.read()]
        for record in records:
            self.locks.note(RunFolder(record.folder), goes_on=not record.has_ended)
        return {record.name: record for record in records}

    def read(self) -> list[RunRecord]:
        """The records as they are on the disk."""
        return [_read_record(file) for file in sorted(self._folder.glob("*.json"))]

    def save(self, record: RunRecord) -> None:
        if record.task.is_plain and record.has_ended:  # before the lock goes, by which readers see that the run is over
            with self._troubles.survived(f"run {record.name}'s end"):
                write_end(RunFolder(record.folder), RunEnd(record.state, record.message))
        self.locks.note(RunFolder(record.folder), goes_on=not record.has_ended)
        self._unsaved[record.name] = record
        self.save_again()

    def save_again(self) -> None:
        """Write the records that are not written yet."""
        for name, record in list(self._unsaved.items()):
            try:
                write_secret(self._folder / f"{name}.json", record.model_dump_json(indent=1))
            except OSError as error:
                self._troubles.note(f"run {name}", error)
            else:
                del self._unsaved[name]


def _read_record(file: Path) -> RunRecord:
    try:
        record = RunRecord.model_validate_json(read_plain(file))
    except (ValidationError, OSError):
        record = None
    if record is None or record.name != file.stem:
        raise MeetingError(f"{file} is damaged", fix=f"rm -r {quote(file)}; the run's own folder is not touched")
    return record
