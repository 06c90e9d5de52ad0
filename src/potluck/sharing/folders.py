"""A run's folders of data as a worker knows them: `potluck.data_dir`, and files that have not arrived yet."""

from pathlib import Path

import msgspec

from potluck.core.environment import read_shared_data
from potluck.core.errors import UsageError, did_you_mean


class WorkerFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of data on this machine."""

    name: str
    path: str
    """Where scripts find it."""
    arriving: str = ""
    """Where its files are while they arrive; empty on the machine that has the folder."""
    socket: str = ""
    """Of the sharing process."""
    links: tuple[str, ...] = ()
    """Other paths that lead there."""
    comes_first: bool = False
    """The script begins when all of the folder has arrived."""


def as_variable(folders: list[WorkerFolder]) -> dict[str, str]:
    """The environment variable that tells a worker its folders."""
    return {"POTLUCK_DATA": msgspec.json.encode(folders).decode()} if folders else {}


def read_folders() -> list[WorkerFolder]:
    """The folders of this worker's run."""
    text = read_shared_data()
    return msgspec.json.decode(text, type=list[WorkerFolder]) if text else []


def data_dir(name: str | None = None, *, whole: bool = False) -> Path:
    """The folder of data that `potluck run --data` shares, on this machine; its name is needed if there are several.

    With `whole`, waits until all of it has arrived, for libraries that open files past Python, such as safetensors.
    In a script that was started without `potluck run`, the folder of that name in the current folder.
    """
    found = _find(name)
    if whole:
        _await([one for one in read_folders() if Path(one.path) == found])
    return found


def _find(name: str | None) -> Path:
    folders = {one.name: Path(one.path) for one in read_folders()}
    if name is None and len(folders) == 1:
        return next(iter(folders.values()))
    if name is not None and name in folders:
        return folders[name]
    if name is not None and not folders and Path(name).is_dir():
        return Path(name)
    if name is None and folders:
        raise UsageError(
            f"this run has several folders of data: {', '.join(folders)}",
            fix=f'name one: potluck.data_dir("{next(iter(folders))}")',
        )
    what = "no folder of data" if name is None else f"no folder of data called {name!r}"
    fix = did_you_mean(str(name), folders) if folders else f"potluck run --data {name or 'FOLDER'} script.py"
    raise UsageError(f"this run has {what}", fix=fix)


def watch_folders() -> None:
    """Let this process read files of its run's folders that have not arrived yet, by waiting for them."""
    folders = [one for one in read_folders() if one.arriving]
    if folders:
        from potluck.sharing.arriving import watch  # noqa: PLC0415  imports numpy
        from potluck.sharing.arriving_paths import ArrivingFolder  # noqa: PLC0415
        from potluck.sharing.asking import SharingLine  # noqa: PLC0415

        lines = {one.socket: SharingLine(one.socket) for one in folders}
        for line in lines.values():
            line.await_ready()
        watch([ArrivingFolder(one.name, one.path, one.links, one.arriving, lines[one.socket]) for one in folders])
    _await([one for one in folders if one.comes_first])


def _await(folders: list[WorkerFolder]) -> None:
    """Wait until all files of these folders have arrived."""
    for one in folders:
        if one.arriving:
            from potluck.sharing.asking import SharingLine  # noqa: PLC0415

            SharingLine(one.socket).want_all(one.name)
