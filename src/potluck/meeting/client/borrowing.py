"""Copies a run from the host to this machine for reading: its settings and the events of all its machines."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from potluck.core.atomic import write_text
from potluck.core.run_end import RunEnd, write_end
from potluck.core.run_folder import RunFolder, check_run_name
from potluck.core.states import ENDED
from potluck.events.alive import HostLocks
from potluck.meeting.client.cluster import ClusterClient

_EVENTS: Final = re.compile(r"events/[A-Za-z0-9][A-Za-z0-9._-]*\.jsonl")
_FULL_BYTES: Final = 1 << 17  # after a chunk of this size there may be more: the host sends at most twice as much


def runs_on_host(cluster: ClusterClient) -> list[str]:
    """The names of the host's runs, the newest last."""
    runs = sorted(cluster.status()["runs"], key=lambda run: float(run["started_at"]))
    return [str(run["run"]) for run in runs]


@contextmanager
def borrow_run(cluster: ClusterClient, name: str) -> Iterator[RunFolder]:
    """A temporary copy of a run's folder as it is on the host now; deleted at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="potluck-run-") as place:
        folder = RunFolder(Path(place) / check_run_name(name))
        (folder.path / "events").mkdir(parents=True)
        run = _copy_events(cluster, folder)
        folder = RunFolder(folder.path, origin=(cluster.membership.host, Path(run["folder"])))
        write_text(folder.settings_file, yaml.safe_dump(run["settings"], sort_keys=False))
        if run["is_plain"] and run["state"] in ENDED:
            write_end(folder, RunEnd(run["state"], run["message"]))
        locks = HostLocks()
        locks.note(folder, goes_on=run["state"] not in ENDED)
        try:
            yield folder
        finally:
            locks.note(folder, goes_on=False)


def _copy_events(cluster: ClusterClient, folder: RunFolder) -> dict[str, Any]:
    """Copy all events that the host has of the run now; returns the host's description of the run."""
    offsets: dict[str, int] = {}
    while True:
        chunks, run = cluster.read_on(folder.name, offsets)
        sizes = [chunk["next_offset"] - offsets.get(chunk["file"], 0) for chunk in chunks]
        for chunk in chunks:
            offsets[chunk["file"]] = chunk["next_offset"]
            if _EVENTS.fullmatch(chunk["file"]):
                with (folder.path / chunk["file"]).open("a", encoding="utf-8") as file:
                    file.write(chunk["text"])
        if max(sizes, default=0) < _FULL_BYTES:
            return run
