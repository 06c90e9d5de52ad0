"""Where a folder of data lies on a machine that gets it: ~/.potluck/data/HASH, kept for later runs.

    catalogue      the folder's files and the hashes of their pieces
    arriving/NAME  the files as they arrive, with holes; only Potluck reads them
    seen/NAME      what scripts see: a file that has arrived, or a link to nowhere in the place of one that has not
    complete       a mark: every file has arrived

A program that knows nothing of Potluck and opens a file that has not arrived is told that there is no such file; it
never reads holes.
"""

import hashlib
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from potluck.core.atomic import replacing, write_text
from potluck.core.errors import SharingError
from potluck.core.plain_file import read_plain
from potluck.core.shell_words import quote
from potluck.sharing.catalogue import MOST_CATALOGUE_BYTES, Catalogue, DataFile

NOT_HERE = "has-not-arrived-yet"
"""Target of the links in the place of files that have not arrived."""
COMPLETE = "complete"
"""The file that marks a folder of which every file has arrived."""
_SPARE_BYTES = 256 << 20  # of the disk, for everything else that a run writes


class DataPlace:
    """The folder ~/.potluck/data/HASH."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.catalogue_file = folder / "catalogue"
        self.arriving = folder / "arriving"
        self.view = folder / "seen" / name
        self._mark = folder / COMPLETE

    def has_catalogue(self, digest: str) -> bool:
        """Whether the catalogue is here and has this SHA-256."""
        try:
            return hashlib.sha256(read_plain(self.catalogue_file, MOST_CATALOGUE_BYTES)).hexdigest() == digest
        except OSError:
            return False

    def keep_catalogue(self, digest: str, content: bytes) -> None:
        """Keep the catalogue; SharingError unless it has this SHA-256."""
        if hashlib.sha256(content).hexdigest() != digest:
            raise SharingError(
                f"the list of {self.name}'s files arrived damaged", fix="start the run again with --data"
            )
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(self.catalogue_file) as file:
            file.write(content)

    def open(self, catalogue: Catalogue) -> bool:
        """Make what scripts see; returns whether every file is here already, as it was when it had arrived."""
        os.utime(self.folder)
        if self._mark.is_file() and self._mark.read_text(encoding="ascii", errors="replace") == self._fingerprint(
            catalogue
        ):
            return True
        self._mark.unlink(missing_ok=True)
        has_begun, is_new, made = self.arriving.is_dir(), not self.view.is_dir(), set()
        nowhere, view, arriving = self.folder / NOT_HERE, str(self.view), str(self.arriving / self.name)
        nowhere.unlink(missing_ok=True)
        nowhere.symlink_to(NOT_HERE)
        for file in catalogue.files:
            path, inside = f"{view}/{file.path}", file.path.rpartition("/")[0]
            if has_begun:
                with suppress(FileNotFoundError):  # a piece of it may have to be written again
                    os.chmod(f"{arriving}/{file.path}", 0o644)  # noqa: PTH101  a folder may have a million files
            if inside not in made:
                (self.view / inside).mkdir(parents=True, exist_ok=True)
                made.add(inside)
            if not is_new:
                with suppress(FileNotFoundError):  # a file that had arrived is checked again before it is shown
                    os.unlink(path)  # noqa: PTH108
            if file.size:
                _link(str(nowhere), path)
            else:
                Path(path).touch()
        return False

    def show(self, file: DataFile) -> None:
        """The whole file is here: put it where scripts see it."""
        path = self.view / file.path
        if file.size and path.is_symlink():
            whole, beside = self.arriving / self.name / file.path, path.with_name(f".{path.name}.potluck")
            beside.unlink(missing_ok=True)
            beside.hardlink_to(whole)
            beside.chmod(0o444)
            beside.replace(path)

    def finish(self, catalogue: Catalogue) -> None:
        """Every file has arrived and was shown."""
        write_text(self._mark, self._fingerprint(catalogue))

    def _fingerprint(self, catalogue: Catalogue) -> str:
        """Of sizes and times of all files that scripts see; a file that was changed or removed changes it."""
        digest = hashlib.sha256()
        for file in catalogue.files:
            try:
                status = os.lstat(f"{self.view}/{file.path}")
            except OSError:
                return ""
            digest.update(f"{file.path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        return digest.hexdigest()


def _link(nowhere: str, path: str) -> None:
    """Make a link to nowhere: another name for the first one, which is made in half the time, if the disk allows it."""
    try:
        os.link(nowhere, path, follow_symlinks=False)
    except OSError:
        Path(path).symlink_to(NOT_HERE)


def make_room(
    places: Path, own: DataPlace, size_bytes: int, limit_bytes: int | None, in_use: Collection[Path] = ()
) -> None:
    """Remove folders of earlier runs, the longest unused first, until this one fits; SharingError if it cannot.

    `in_use`: folders that stay. `limit_bytes`: the most that all folders may take; by default, half of the disk space
    that they could have.
    """
    own.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    used = {one: _used(one) for one in places.iterdir() if (one / "catalogue").is_file() or one == own.folder}
    others = sorted((one for one in used if one not in (own.folder, *in_use)), key=lambda one: one.stat().st_mtime)
    missing = max(0, size_bytes - used[own.folder])

    def free() -> int:
        return shutil.disk_usage(places).free - _SPARE_BYTES

    limit = (free() + sum(used.values())) // 2 if limit_bytes is None else limit_bytes
    while others and (free() < missing or size_bytes + sum(used[one] for one in others) > limit):
        shutil.rmtree(others.pop(0), ignore_errors=True)
    if free() < missing:
        raise SharingError(
            f"{own.name} needs {missing / 1e9:,.2f} GB here, and {places} has {max(0, free()) / 1e9:,.2f} GB to spare",
            fix=f"free space (df -h {quote(places)}), or keep Potluck's folder on another disk with POTLUCK_HOME, or "
            "name the other machines with --machines",
        )
    if limit_bytes is not None and size_bytes > limit_bytes:
        raise SharingError(
            f"{own.name} has {size_bytes / 1e9:,.2f} GB, and POTLUCK_DATA_LIMIT is {limit_bytes / 1e9:,.2f} GB here",
            fix="set a higher POTLUCK_DATA_LIMIT where potluck join runs, or name the other machines with --machines",
        )


def _used(folder: Path) -> int:
    """The bytes on disk of all files below a folder's `arriving`; holes do not count."""
    total = 0
    for parent, _, names in os.walk(folder / "arriving"):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512  # noqa: PTH118  100,000 files
            except OSError:
                continue
    return total
