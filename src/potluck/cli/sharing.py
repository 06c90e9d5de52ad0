"""Folders of data for a run: `--data` of `potluck run`."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from potluck.core.errors import SharingError
from potluck.core.words import counted
from potluck.meeting.client.cluster import ClusterClient
from potluck.meeting.home import Home
from potluck.meeting.wire import SharedFolder
from potluck.sharing.catalogue import make_catalogue, read_catalogue
from potluck.sharing.folders import WorkerFolder, as_variable
from potluck.sharing.granted import grant


def _check(folders: list[Path]) -> None:
    """Raise unless all are folders of this machine with different names."""
    seen: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if not folder.is_dir():
            raise SharingError(f"there is no folder {folder}", fix="give --data a folder of this machine")
        if not name or not name.isascii() or not name.replace("-", "a").replace("_", "a").replace(".", "a").isalnum():
            raise SharingError(
                f"{folder} has a name that scripts cannot use: {name!r}",
                fix="rename the folder; letters, digits, '-', '_' and '.' may be in it",
            )
        if name in seen:
            raise SharingError(f"both {seen[name]} and {folder} are called {name}", fix="rename one of the two folders")
        seen[name] = folder


def own_folders(folders: list[Path]) -> dict[str, str]:
    """The variable for a script that runs on this machine alone."""
    _check(folders)
    return as_variable([WorkerFolder(name=one.resolve().name, path=str(one.resolve())) for one in folders])


def share_folders(
    cluster: ClusterClient,
    home: Home,
    folders: list[Path],
    packed: Path,
    tell: Callable[[str], None],
    first: list[Path] | None = None,
) -> list[SharedFolder]:
    """List the folders' files, give the lists to the host, and let this machine's agent send the files.

    `first`: folders that arrive before the script begins.
    """
    _check([*folders, *(first or [])])
    shared = []
    for folder in [*folders, *(first or [])]:
        content = make_catalogue(folder, home.data_dir / "catalogues", tell)
        catalogue, digest = read_catalogue(content), hashlib.sha256(content).hexdigest()
        grant(home.data_dir, digest, folder)
        cluster.send_catalogue(digest, content)
        inside = folder.resolve().is_relative_to(packed.resolve())
        tell(
            f"{catalogue.name}: {counted(len(catalogue.files), 'file')}, {catalogue.size_bytes / 1e9:,.2f} GB, "
            f"goes to the other machines {'before' if folder in (first or []) else 'while'} they train"
        )
        shared.append(
            SharedFolder(
                name=catalogue.name,
                catalogue=digest,
                source=cluster.membership.machine,
                size_bytes=catalogue.size_bytes,
                num_files=len(catalogue.files),
                link=folder.resolve().relative_to(packed.resolve()).as_posix() if inside else "",
                comes_first=folder in (first or []),
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
    return share_folders(cluster, home, [folder], Path("/dev/null"), tell)
