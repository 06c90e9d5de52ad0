"""What a host gives to its successors: its state as one message, numbered, and parts of runs' files."""

import time
from pathlib import Path

from potluck.core.checkpoint_names import checkpoint_files
from potluck.core.errors import MeetingError
from potluck.core.run_folder import RunFolder
from potluck.meeting.host.reign import Reign
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.runs import RunRecord
from potluck.meeting.succession.state_copy import CheckpointName, HostStateCopy, RunCopy, StateAnswer
from potluck.meeting.transfer.shipping import check_file_name, entries_of

_PART_BYTES = 1 << 20
_KEEP_ENDED_S = 60.0
_CHANGES_BITS = 24


class StateCopies:
    """Numbers the host's states: a successor asks again and again, and gets a state only if it is a new one."""

    def __init__(self, token: bytes, reign: Reign) -> None:
        self._token = token.hex()
        self._reign = reign
        self._last: HostStateCopy | None = None
        # A host that starts again in its term must not count from 1: its successors would keep what they have.
        self._number = reign.start << _CHANGES_BITS
        self._ended_at: dict[str, float] = {}

    def take(self, roster: MachineRoster, runs: dict[str, RunRecord]) -> HostStateCopy:
        """The state now; it has a new number if it differs from the last one."""
        unfinished = [record for record in runs.values() if not record.has_ended]
        state = HostStateCopy(
            term=self._reign.term,
            number=self._number,
            roster=roster.as_json(),
            runs={name: RunCopy(record=record.model_dump_json()) for name, record in runs.items()},
            token=self._token,
            bundles=sorted({record.task.bundle for record in unfinished if record.task.bundle}),
            catalogues=sorted({folder.catalogue for record in unfinished for folder in record.task.data}),
        )
        if self._last is None or state != self._last:
            self._number += 1
            self._last = state.model_copy(update={"number": self._number})
        return self._last

    def answer(self, state: HostStateCopy, known: int, runs: dict[str, RunRecord]) -> StateAnswer:
        """What a successor lacks: the state, and the sizes of the files of runs that go on or have just ended."""
        now, files, checkpoints = time.monotonic(), {}, {}
        for name, record in runs.items():
            ended_at = self._ended_at.setdefault(name, now) if record.has_ended else now
            if now - ended_at > _KEEP_ENDED_S or record.task.is_plain:
                continue
            files[name] = _sizes(record.folder)
            newest = next(iter(checkpoint_files(RunFolder(record.folder).checkpoints_dir)), None)
            if newest is not None:
                seen = newest.stat()
                checkpoints[name] = CheckpointName(name=newest.name, size=seen.st_size, changed_ns=seen.st_mtime_ns)
        return StateAnswer(state=None if known >= state.rank else state, files=files, checkpoints=checkpoints)


def _sizes(folder: Path) -> dict[str, int]:
    named = {name: entry.stat().st_size for name, entry in entries_of(folder) if entry.is_file()}
    settings = folder / "run.yaml"
    return {**named, **({"run.yaml": settings.stat().st_size} if settings.is_file() else {})}


def read_part(folder: Path, name: str, offset: int) -> bytes:
    """Bytes of a run's file from an offset; of an event file only whole lines: a half one may be cut off again."""
    if name != "run.yaml":
        check_file_name(name)
    try:
        with (folder / name).open("rb") as file:
            file.seek(offset)
            content = file.read(_PART_BYTES)
    except OSError as error:
        raise MeetingError(f"{name} cannot be read: {error.strerror}", fix="see what potluck host prints") from None
    return content[: content.rfind(b"\n") + 1] if name.startswith("events/") else content
