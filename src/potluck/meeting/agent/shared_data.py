"""A run's folders of data on this machine: fetches their catalogues, makes room, and keeps the sharing process."""

import threading
import time
from pathlib import Path

from potluck.core.disk import as_disk_error
from potluck.core.environment import read_data_limit
from potluck.core.errors import PotluckError, SharingError
from potluck.core.quantities import size_bytes
from potluck.meeting.agent.messages import AgentPlace
from potluck.meeting.client.client import HostClient
from potluck.meeting.wire import DataReport, GateOrders, SharedFolder, SharingOrder
from potluck.sharing.folders import WorkerFolder
from potluck.sharing.granted import granted_folder
from potluck.sharing.messages import FolderSettings, SharingPeer, SharingSettings
from potluck.sharing.place import DataPlace, make_room
from potluck.sharing.process import SharingProcess

_FETCH_S = 60.0
_READY_S = 300.0
_LOOK_S = 0.05


class SharedData:
    """One run's data here, from the first order to the run's end."""

    def __init__(self, place: AgentPlace, order: SharingOrder, gates: GateOrders) -> None:
        self._place = place
        self._order, self._gates = order, gates
        self._lock = threading.Lock()
        self._process: SharingProcess | None = None
        self._folders: tuple[FolderSettings, ...] = ()
        self._failure: PotluckError | OSError | None = None
        self._is_over = False
        threading.Thread(target=self._begin, name="potluck-data", daemon=True).start()

    def follow(self, order: SharingOrder, gates: GateOrders) -> None:
        """Take the current peers."""
        with self._lock:
            self._order, self._gates = order, gates
            if self._process is not None:
                self._process.update(self._settings())

    def close(self) -> None:
        """Stop sharing; what has arrived stays for the next run."""
        with self._lock:
            self._is_over = True
            process, self._process = self._process, None
        if process is not None:
            process.close()

    def report(self) -> list[DataReport]:
        """How far the data has arrived; empty until the sharing process can be dialled."""
        process = self._process
        if process is None or not process.state.port:
            return []
        state = process.state
        return [
            DataReport(
                run_id=self._order.run_id,
                port=state.port,
                have_bytes=state.have_bytes,
                total_bytes=state.total_bytes,
                trouble=state.trouble[:300],
            )
        ]

    def line(self) -> str:
        """How far the data has arrived, for this machine's display; empty if it is all here."""
        reports = self.report()
        if not reports or reports[0].have_bytes >= reports[0].total_bytes:
            return ""
        one = reports[0]
        share = one.have_bytes / one.total_bytes
        trouble = f"; {one.trouble}" if one.trouble else ""
        return f"data {share:.0%} here ({one.have_bytes / 1e9:,.2f} of {one.total_bytes / 1e9:,.2f} GB){trouble}"

    def wait(self, working_folder: Path | None) -> list[WorkerFolder]:
        """Wait until there is room for the data; returns what workers have to know. Raises what failed.

        Workers themselves wait until all files can be seen. The folders are linked into `working_folder`, where the
        script runs, if nothing is there.
        """
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            if self._failure is not None:
                raise self._failure
            process = self._process
            if process is not None and not process.state.trouble:
                return [self._as_worker_sees(one, process, working_folder) for one in self._order.folders]
            if process is not None:
                raise SharingError(process.state.trouble, fix="see what potluck join or potluck host prints here")
            time.sleep(_LOOK_S)
        raise SharingError(
            f"the data of run {self._order.run} is not ready after {_READY_S:.0f} s", fix="start the run again"
        )

    def _as_worker_sees(self, folder: SharedFolder, process: SharingProcess, working: Path | None) -> WorkerFolder:
        settings = next(one for one in self._folders if one.name == folder.name)
        place = DataPlace(Path(settings.place), folder.name)
        path = Path(settings.source) if settings.source else place.view
        links: tuple[str, ...] = ()
        if working is not None and (link := _link(working, folder, path)) is not None:
            links = (str(link),)
        if settings.source:
            return WorkerFolder(name=folder.name, path=str(path))
        return WorkerFolder(
            name=folder.name,
            path=str(path),
            arriving=str(place.arriving / folder.name),
            socket=str(process.socket),
            links=links,
            comes_first=folder.comes_first,
        )

    def _begin(self) -> None:
        try:
            self._folders = tuple(self._open(one) for one in self._order.folders)
            with self._lock:
                if not self._is_over:
                    self._process = SharingProcess(self._settings())
        except PotluckError as error:
            self._failure = error
        except OSError as error:
            self._failure = as_disk_error(error) or error

    def _open(self, folder: SharedFolder) -> FolderSettings:
        """Fetch the catalogue, and make room for the files."""
        places = self._place.home.data_dir.absolute()
        place = DataPlace(places / folder.catalogue[:32], folder.name)
        if not place.has_catalogue(folder.catalogue):
            with HostClient.of(self._place.membership, timeout_s=_FETCH_S) as client:
                place.keep_catalogue(folder.catalogue, client.send("GET", f"/catalogues/{folder.catalogue}"))
        catalogue = str(place.catalogue_file)
        if folder.source == self._place.membership.machine:
            source = granted_folder(places, folder.catalogue)
            return FolderSettings(name=folder.name, catalogue=catalogue, source=str(source))
        limit = read_data_limit()
        in_use = [places / one.catalogue[:32] for one in self._order.folders]
        make_room(places, place, folder.size_bytes, None if limit is None else size_bytes(limit), in_use)
        return FolderSettings(name=folder.name, catalogue=catalogue, place=str(place.folder))

    def _settings(self) -> SharingSettings:
        own = self._place.membership.machine
        addresses = self._gates.addresses()
        return SharingSettings(
            address=addresses[own],
            gate=self._place.gate,
            gate_run=self._order.run_id,
            folders=self._folders,
            # One of two machines dials: the one whose name comes later.
            peers=tuple(
                SharingPeer(addresses[name], port)
                for name, port in self._order.peers.items()
                if name < own and name in addresses
            ),
        )


def _link(working: Path, folder: SharedFolder, path: Path) -> Path | None:
    """Link the folder into the script's folder, at the place that it had there; None if something is in that place."""
    link = working / (folder.link or folder.name)
    if ".." in link.parts or link.exists() or link.is_symlink() or not link.parent.is_dir():
        return None
    link.symlink_to(path, target_is_directory=True)
    return link
