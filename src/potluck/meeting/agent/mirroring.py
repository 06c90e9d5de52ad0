"""Copies the host's state and its runs' files to this machine, which may have to take the host's place."""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from potluck.core.atomic import replacing
from potluck.core.checkpoint_names import is_checkpoint_name
from potluck.core.disk import as_disk_error
from potluck.core.errors import MeetingError, PotluckError, ShippingError
from potluck.core.run_folder import RunFolder
from potluck.meeting.agent.checkpoint_mirror import CheckpointMirror
from potluck.meeting.agent.preparation import claim_folder
from potluck.meeting.client.client import HostClient, HostSilentError
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.succession.run_place import is_made_by_host, run_place
from potluck.meeting.succession.state_copy import KeptCopy, StateAnswer, StateRequest
from potluck.meeting.transfer.bundle import BundleCache
from potluck.meeting.transfer.catalogues import KeptCatalogues
from potluck.meeting.transfer.shipping import is_file_name, receive

_EVERY_S = 0.4
_AGAIN_S = 1.0
_MOST_PARTS = 8  # of one file in a row, before the next file has its turn


class HasFolder(Protocol):
    """A run on this machine."""

    folder: Path


class Mirror:
    """One thread that keeps this machine's copy of the host up to date, until `close`."""

    def __init__(
        self,
        home: Home,
        membership: HostMembership,
        kept: KeptCopy,
        runs: Mapping[str, HasFolder],
        tell: Callable[[str], None],
    ) -> None:
        self._home = home
        self._membership = membership
        self._kept = kept
        self._runs = runs
        self._tell = tell
        self._bundles = BundleCache(home.host_dir / "bundles")
        self._catalogues = KeptCatalogues(home.host_dir / "catalogues")
        self._claimed: dict[str, Path] = {}
        """By run: its folder on this machine, of runs that this machine's workers have no part in."""
        self._refused: set[tuple[str, str]] = set()
        self._is_over = threading.Event()
        self._keeping = threading.Lock()
        self._checkpoints = CheckpointMirror(membership, tell, self._is_over)
        self._thread = threading.Thread(target=self._copy, name="potluck-mirror", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._checkpoints.start()

    def close(self) -> None:
        """Stop copying: from now on no copy is written."""
        with self._keeping:
            self._is_over.set()

    def _copy(self) -> None:
        told = ""
        with HostClient.of(self._membership) as client:
            while not self._is_over.wait(_EVERY_S):
                try:
                    self._copy_once(client)
                except HostSilentError:
                    self._is_over.wait(_AGAIN_S)
                except (PotluckError, OSError) as error:
                    if str(error) != told and not self._is_over.is_set():
                        told = str(error)
                        why = as_disk_error(error) or error
                        self._tell(f"the copy of {self._membership.host}'s state is not up to date: {why}")
                    self._is_over.wait(_AGAIN_S)
                else:
                    told = ""

    def _copy_once(self, client: HostClient) -> None:
        self._kept.try_disk()  # the host must not count on a machine that could not note a newer state, or its vote
        answer = client.ask_for(StateAnswer, "POST", "/succession", StateRequest(known=self._kept.rank))
        if answer.state is not None and not self._is_over.is_set():
            for digest in answer.state.bundles:
                if self._bundles.get(digest) is None:
                    self._bundles.put(digest, client.send("GET", f"/bundles/{digest}"))
            for digest in answer.state.catalogues:
                if not self._has_catalogue(digest):
                    self._catalogues.put(digest, client.send("GET", f"/catalogues/{digest}"))
            with self._keeping:
                if self._is_over.is_set():  # this machine may be the host by now, with a state of its own
                    return
                self._kept.keep(answer.state)
        for run, sizes in answer.files.items():
            for name, size in sizes.items():
                if not self._is_over.is_set():
                    self._copy_file(client, run, name, size)
        self._checkpoints.want(
            {
                run: (RunFolder(self._folder_of(run)), newest)
                for run, newest in answer.checkpoints.items()
                if is_checkpoint_name(newest.name)
            }
        )

    def _folder_of(self, run: str) -> Path:
        """Where this machine's own workers of the run write, else where they would."""
        local = self._runs.get(run)
        if local is not None:
            return local.folder
        state = self._kept.state
        if run not in self._claimed and state is not None and run in state.runs:
            run_id = str(json.loads(state.runs[run].record)["id"])
            folder = run_place(self._home, run, run_id)
            claim_folder(folder, run_id, is_resumed=is_made_by_host(self._home, folder))
            self._claimed[run] = folder
        return self._claimed.get(run, self._home.runs_dir.absolute() / run)

    def _has_catalogue(self, digest: str) -> bool:
        try:
            self._catalogues.get(digest)
        except MeetingError:
            return False
        return True

    def _copy_file(self, client: HostClient, run: str, name: str, size: int) -> None:
        folder = self._folder_of(run)
        path = f"/succession/files/{run}?file={name}&offset="
        if name == "run.yaml":
            if not (folder / name).exists():
                with replacing(folder / name) as file:
                    file.write(client.send("GET", f"{path}0"))
            return
        if (run, name) in self._refused or is_file_name(name, self._membership.machine):
            return
        here = 0
        with suppress(FileNotFoundError):  # one look at a file: a run of days has hundreds
            here = (folder / name).stat().st_size
        for _ in range(_MOST_PARTS):
            if here >= size:
                return
            part = client.send("GET", f"{path}{here}")
            if not part:
                return
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                here = receive(folder, name, here, part)
            except ShippingError as error:
                self._refused.add((run, name))
                self._tell(f"{name} of run {run} is not copied: {error.args[0]}")
                return
