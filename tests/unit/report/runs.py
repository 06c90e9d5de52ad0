"""Run folders to look at: a real one, and what crashes and other clocks make of it."""

import shutil
from pathlib import Path

import msgspec

from potluck.core.run_folder import RunFolder
from potluck.events.log import read_records

EVENTFUL = Path(__file__).parents[2] / "runs" / "eventful"
RESUMED = EVENTFUL.with_name("resumed")


def eventful(runs_dir, name="eventful"):
    """A copy of the real run."""
    shutil.copytree(EVENTFUL, runs_dir / name)
    return RunFolder(runs_dir / name)


def resumed(runs_dir, name="resumed"):
    """A copy of the real run that was killed as a whole and resumed, with one machine's checkpoint older."""
    shutil.copytree(RESUMED, runs_dir / name)
    return RunFolder(runs_dir / name)


def crashed(runs_dir, name="crashed"):
    """The real run if the power had failed at step 150: no goodbye, and half a line in one file."""
    folder = eventful(runs_dir, name)
    for file in folder.event_files():
        lines = file.read_bytes().splitlines(keepends=True)
        kept = next(n for n, line in enumerate(lines) if b'"step_committed","step":150,' in line) + 1
        file.write_bytes(b"".join(lines[:kept]) + lines[kept][:40])
    return folder


def half_written(runs_dir, name="half"):
    """A run that has only begun: one worker has started, another's file is empty, run.yaml is half there."""
    folder = eventful(runs_dir, name)
    rosa, lily, fern = (folder.event_file(machine, 0) for machine in ("rosa", "lily", "fern"))
    rosa.write_bytes(rosa.read_bytes().splitlines(keepends=True)[0])
    lily.write_bytes(b"")
    fern.unlink()
    folder.settings_file.write_text("model: [simple")
    return folder


def damaged(runs_dir, name="damaged"):
    """A run with nonsense in the middle of a file."""
    folder = eventful(runs_dir, name)
    file = folder.event_file("rosa", 0)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:5], b"nonsense\n", *lines[5:]]))
    return folder


def move_clock(file, seconds):
    """Let a file's machine have a clock that is ahead by so much."""
    records = [msgspec.structs.replace(record, time=record.time + seconds) for record in read_records(file)]
    file.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
