"""Folders of data for a run: `--data` of `potluck run`."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from potluck.core.errors import SharingError
from potluck.core.words import counted
from potluck.meeting.client.cluster import ClusterClient
from potluck.meeting.home import Home
from potluck.meeting.wire import SharedFolder
from potluck.sharing.catalogue import located, make_catalogue, read_catalogue
from potluck.sharing.folders import WorkerFolder, as_variable
from potluck.sharing.granted import grant


def given_folders(data: Sequence[Path] | None, first: Sequence[Path] | None = None) -> dict[Path, bool]:
    """The full paths of the folders of `--data` and `--data-first`, and whether each comes before the script begins.

    Raises unless all are folders of this machine with different names.
    """
    given: dict[Path, bool] = {}
    for folder in (*(data or ()), *(first or ())):
        where = located(folder)
        name = where.name
        if not folder.is_dir():
            raise SharingError(f"there is no folder {folder}", fix="give --data a folder of this machine")
        if not name or not name.isascii() or not name.replace("-", "a").replace("_", "a").replace(".", "a").isalnum():
            raise SharingError(
                f"{folder} has a name that scripts cannot use: {name!r}",
                fix="rename the folder; letters, digits, '-', '_' and '.' may be in it",
            )
        for other in given:
            if other.name == name:
                raise SharingError(f"both {other} and {where} are called {name}", fix="rename one of the two folders")
        given[where] = folder in (first or ())
    return given


def own_folders(folders: Mapping[Path, bool]) -> dict[str, str]:
    """The variable for a script that runs on this machine alone."""
    return as_variable([WorkerFolder(name=folder.name, path=str(folder)) for folder in folders])


def share_folders(
    cluster: ClusterClient, home: Home, folders: Mapping[Path, bool], packed: Path, tell: Callable[[str], None]
) -> list[SharedFolder]:
    """List the folders' files, give the lists to the host, and let this machine's agent send the files."""
    shared = []
    for folder, comes_first in folders.items():
        content = make_catalogue(folder, home.data_dir / "catalogues", tell)
        catalogue, digest = read_catalogue(content), hashlib.sha256(content).hexdigest()
        grant(home.data_dir, digest, folder)
        cluster.send_catalogue(digest, content)
        tell(
            f"{catalogue.name}: {counted(len(catalogue.files), 'file')}, {catalogue.size_bytes / 1e9:,.2f} GB, "
            f"goes to the other machines {'before' if comes_first else 'while'} they train"
        )
        top = packed.resolve()
        shared.append(
            SharedFolder(
                name=catalogue.name,
                catalogue=digest,
                source=cluster.membership.machine,
                size_bytes=catalogue.size_bytes,
                num_files=len(catalogue.files),
                link=folder.relative_to(top).as_posix() if folder.is_relative_to(top) else "",
                comes_first=comes_first,
            )
        )
    return shared


def share_data_dir(
    cluster: ClusterClient, home: Home, data_dir: object, tell: Callable[[str], None]
) -> list[SharedFolder]:
    """Share the folder of `--data-dir`, if this machine has it; else each machine looks for it itself."""
    folder = None if data_dir is None else Path(str(data_dir)).expanduser()
    if folder is None or not folder.is_dir() or not any(folder.iterdir()):
        return []
    return share_folders(cluster, home, given_folders([folder]), Path("/dev/null"), tell)
