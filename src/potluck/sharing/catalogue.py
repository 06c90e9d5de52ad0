"""A folder's catalogue: its files, their sizes and the hashes of their pieces, as a torrent.

The catalogue of a folder that has not changed since the last time is read from a file: hashing takes a second for every
gigabyte or two.
"""

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potluck.core.atomic import replacing
from potluck.core.errors import SharingError
from potluck.core.newest_files import keep_newest
from potluck.core.plain_file import read_plain
from potluck.core.shell_words import quote

MOST_CATALOGUE_BYTES = 96 << 20
_MOST_FILES = 1_000_000
_KEPT = 20
_LEAST_PIECE, _PIECES = 128 << 10, 1 << 15


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a folder."""

    path: str
    """Relative to the folder, with '/'."""
    size: int
    offset: int
    """Where it begins, if all files of the folder were one: a piece may hold the end of a file and the next files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """A folder's files, sorted by their paths."""

    name: str
    torrent: Any
    """libtorrent's torrent_info."""
    piece_bytes: int
    files: tuple[DataFile, ...]

    size_bytes: int

    def pieces(self, file: DataFile, start: int, end: int) -> range:
        """The pieces that hold these bytes of a file."""
        if end <= start:
            return range(0)
        return range((file.offset + start) // self.piece_bytes, 1 + (file.offset + end - 1) // self.piece_bytes)


def load_libtorrent() -> Any:
    """The library that moves the pieces; SharingError where it is missing."""
    try:
        import libtorrent  # noqa: PLC0415  most runs share no data
    except ImportError:
        raise SharingError(
            "this machine does not have libtorrent, which brings a folder of data to other machines",
            fix="pip install libtorrent (it comes with potluck on x86-64 Linux and Python 3.10 to 3.13); "
            "or copy the folder to every machine and leave --data out",
        ) from None
    return libtorrent


def located(folder: Path) -> Path:
    """The folder's full path under the name that the user gave it, which may be a link to the folder."""
    whole = Path(os.path.abspath(folder))  # noqa: PTH100  resolves "..", and no link
    return whole.parent.resolve() / whole.name


def make_catalogue(folder: Path, kept: Path, tell: Callable[[str], None] = lambda _: None) -> bytes:
    """The catalogue of a folder on this machine, by its full path; `kept`: where catalogues of earlier times are."""
    listed = _list(folder)
    file = kept / hashlib.sha256(repr((str(folder), listed)).encode()).hexdigest()
    if file.is_file():
        os.utime(file)
        return read_plain(file, MOST_CATALOGUE_BYTES)
    size = sum(entry[1] for entry in listed)
    if size > 4e9:
        tell(f"reads {folder}, {size / 1e9:,.1f} GB, to know its content; this is done once")
    made = _make(folder, listed)
    for (path, *_), one in zip(listed, read_catalogue(made).files, strict=True):
        if path != one.path:
            raise SharingError(f"{folder / path} has a name that other machines cannot have", fix="rename the file")
    if _list(folder) != listed:
        raise SharingError(
            f"files in {folder} changed while they were read", fix="type the command again when nothing writes there"
        )
    with replacing(file) as out:
        out.write(made)
    keep_newest(kept.iterdir(), _KEPT)
    return made


def read_catalogue(content: bytes) -> Catalogue:
    """Read a catalogue; SharingError unless all its files lie inside its folder."""
    libtorrent = load_libtorrent()
    try:
        torrent = libtorrent.torrent_info(libtorrent.bdecode(content))
        found = torrent.layout()
        name = str(torrent.name())
        files = []
        for number in range(found.num_files()):
            path = found.file_path(number)
            inside = path.removeprefix(f"{name}/")
            if inside == path or not inside or ".." in inside.split("/") or inside.startswith("/"):
                raise ValueError(path)
            files.append(DataFile(inside, found.file_size(number), found.file_offset(number)))
    except (RuntimeError, ValueError, TypeError):
        raise SharingError(
            "the list of a folder's files is damaged", fix="start the run again; use the same potluck on every machine"
        ) from None
    return Catalogue(
        name=name,
        torrent=torrent,
        piece_bytes=int(torrent.piece_length()),
        files=tuple(files),
        size_bytes=sum(file.size for file in files),
    )


class SampleGuess:
    """Guesses which bytes a sample of a dataset is in: most datasets list files by name, one or more samples each.

    A wrong guess costs time only: the pieces of another sample come first.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        endings = [file.path.rpartition(".")[2] for file in catalogue.files]
        usual = max(Counter(endings).items(), key=lambda one: one[1])[0] if endings else ""
        self._usual = [file for file, ending in zip(catalogue.files, endings, strict=True) if ending == usual]

    def pieces(self, samples: list[int], num_samples: int) -> Iterator[int]:
        """The pieces of these samples, in their order."""
        if num_samples == len(self._usual):
            for sample in samples:
                if 0 <= sample < num_samples:
                    file = self._usual[sample]
                    yield from self._catalogue.pieces(file, 0, file.size)
            return
        size, piece_bytes = self._catalogue.size_bytes, self._catalogue.piece_bytes
        for sample in samples:
            if 0 <= sample < num_samples:
                start, end = size * sample // num_samples, max(1, size * (sample + 1) // num_samples)
                yield from range(start // piece_bytes, 1 + (end - 1) // piece_bytes)


def _list(folder: Path) -> list[tuple[str, int, int, int]]:
    """Path, size, time of change and inode of every file below the folder."""
    if not folder.is_dir():
        raise SharingError(f"there is no folder {folder}", fix="give --data a folder of this machine")
    found: list[tuple[str, int, int, int]] = []
    try:
        for parent, below, names in os.walk(folder, onerror=_raise):
            inside = "" if parent == str(folder) else f"{parent[len(str(folder)) + 1 :]}/"
            for name in below:
                if os.path.islink(f"{parent}/{name}"):  # noqa: PTH114
                    raise SharingError(
                        f"{parent}/{name} is a link to a folder, whose files would not be sent",
                        fix="put the folder itself there, or share it on its own with another --data",
                    )
            for name in names:
                status = os.stat(f"{parent}/{name}")  # noqa: PTH116  a folder may have a million files
                if not stat.S_ISREG(status.st_mode):
                    raise SharingError(f"{parent}/{name} is not a file", fix=f"remove it from {quote(folder)}")
                if not f"{inside}{name}".isprintable():
                    raise SharingError(
                        f"{f'{parent}/{name}'!r} has a name that other machines cannot have", fix="rename the file"
                    )
                found.append((f"{inside}{name}", status.st_size, status.st_mtime_ns, status.st_ino))
    except OSError as error:
        raise SharingError(
            f"{error.filename or folder} cannot be read: {(error.strerror or str(error)).lower()}",
            fix="make it readable, or remove it from the folder",
        ) from None
    if not any(size for _, size, _, _ in found):
        raise SharingError(f"there is nothing in {folder}", fix="give --data the folder that has the files")
    if len(found) > _MOST_FILES:
        raise SharingError(
            f"{folder} has {len(found):,} files, and {_MOST_FILES:,} are the most",
            fix="pack them into larger files, such as tar files or arrays",
        )
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error


def _piece_bytes(listed: list[tuple[str, int, int, int]]) -> int:
    """A power of two: small, because whoever needs one sample gets whole pieces; not so small that there are many."""
    wanted = max(_LEAST_PIECE, sum(size for _, size, _, _ in listed) // _PIECES)
    return 1 << (wanted - 1).bit_length()


def _make(folder: Path, listed: list[tuple[str, int, int, int]]) -> bytes:
    libtorrent = load_libtorrent()
    files = [libtorrent.create_file_entry(f"{folder.name}/{path}", size) for path, size, _, _ in listed]
    # Version 2 (SHA-256, a tree of hashes for every file) took five times as long for 20,000 files: docs/decisions.md.
    made = libtorrent.create_torrent(files, _piece_bytes(listed), libtorrent.create_torrent.v1_only)
    made.set_priv(True)
    made.set_creation_date(0)  # equal folders have equal catalogues
    try:
        libtorrent.set_piece_hashes(made, str(folder.parent))
    except RuntimeError as error:
        raise SharingError(f"{folder} cannot be read: {error}", fix="see that no program writes there") from None
    content: bytes = libtorrent.bencode(made.generate())
    return content
