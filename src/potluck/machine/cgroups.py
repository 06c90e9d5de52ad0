"""The cgroups of this process, version 1 or 2: where Linux keeps the limits of a container."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


class CGroup(NamedTuple):
    """A folder with the files of one cgroup."""

    folder: Path
    version: int

    def read(self, file: str) -> str:
        """The text of one of the cgroup's files; empty without the file."""
        try:
            return (self.folder / file).read_text().strip()
        except OSError:
            return ""


def own_cgroups(controller: str) -> Iterator[CGroup]:
    """This process's cgroup for a controller like "cpu" or "memory", then each of its parents: all their limits hold.

    Inside a container the path may name folders that only the computer outside sees; the last parent, the root of what
    is mounted, is then the container's own cgroup.
    """
    try:
        lines = (_PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            root, version = _CGROUPS, 2
        elif controller in controllers.split(","):
            root, version = _first_there(_CGROUPS / controller, _CGROUPS / controllers), 1
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        for part in (inside, *inside.parents):
            yield CGroup(root / part, version)


def _first_there(*folders: Path) -> Path:
    return next((folder for folder in folders if folder.exists()), folders[0])
