"""Bundles: a script's folder as one file. Equal files give an equal hash; unpacking verifies everything first."""

import gzip
import hashlib
import io
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from potluck.core.atomic import replacing
from potluck.core.errors import BundleError
from potluck.core.newest_files import keep_newest
from potluck.core.plain_file import read_plain
from potluck.core.shell_words import quote
from potluck.meeting.transfer.selection import MAX_FILES, check_entry, select_files

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

DEFAULT_LIMIT_BYTES = 100 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_HEADER_BYTES = 4096  # at most, for one file in the archive: its header, a long name and the padding
_FEW = 5
_BROKEN = (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, OverflowError, RecursionError)
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A packed folder."""

    hash: str
    """SHA-256 of names, contents and executable bits; times, owners and compression do not matter."""

    data: bytes
    entry: str
    """The script, relative to the folder."""

    num_files: int
    size_bytes: int
    left_out: tuple[str, ...]
    """Paths that were skipped and may be missed: links out of the folder, links to folders."""


def pack(
    folder: Path, entry: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES, *, without: tuple[Path, ...] = ()
) -> Bundle:
    """Pack the files that git would take of the folder. `entry` is the script, absolute or relative to the folder.

    `without`: folders that reach the other machines in another way.
    """
    selection = select_files(folder, entry, without)
    _check_size(folder, selection.files, limit_bytes)
    packed, manifest, size_bytes = io.BytesIO(), _Manifest(), 0
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in selection.files:
            path = folder / name
            try:
                content = path.read_bytes()
                executable = bool(path.stat().st_mode & 0o100)
            except OSError as error:
                raise BundleError(
                    f"{path} cannot be read: {error.strerror}",
                    fix=f"make it readable (chmod u+r {quote(path)}), or list it in .gitignore",
                ) from None
            header = tarfile.TarInfo(name)
            header.size = len(content)
            header.mode = 0o755 if executable else 0o644
            archive.addfile(header, io.BytesIO(content))
            manifest.add(name, hashlib.sha256(content).digest(), executable)
            size_bytes += len(content)
    return Bundle(
        hash=manifest.hash(),
        data=packed.getvalue(),
        entry=check_entry(folder, entry),
        num_files=len(selection.files),
        size_bytes=size_bytes,
        left_out=selection.left_out,
    )


def unpack(data: bytes, expected_hash: str, into: Path, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Path:
    """Unpack a bundle into the new folder `into`. Everything is checked before the first file is written."""
    verify(data, expected_hash, limit_bytes=limit_bytes)
    if into.exists():
        raise BundleError(f"{into} is already there", fix=f"remove it: rm -r {quote(into)}")
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{into.name}.", suffix=".tmp", dir=into.parent))
        _write(data, temporary, into, limit_bytes)
    except OSError as error:
        raise BundleError(
            f"the script cannot be unpacked to {into}: {error.strerror}",
            fix=f"make room and check who may write: df -h {into.parent}; ls -ld {into.parent}",
        ) from None
    return into


def _write(data: bytes, temporary: Path, into: Path, limit_bytes: int) -> None:
    """Write all files to a temporary folder, then rename it: `into` is complete or absent."""
    try:
        for header, content in _members(data, limit_bytes):
            path = temporary / header.name
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o755 if header.mode & 0o100 else 0o644
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
                shutil.copyfileobj(content, file, _CHUNK_BYTES)
        temporary.rename(into)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def verify(data: bytes, expected_hash: str, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
    """Raise unless the bytes are a bundle of that hash that is safe to unpack."""
    manifest = _Manifest()
    for header, content in _members(data, limit_bytes):
        digest = hashlib.sha256()
        with _readable():
            while chunk := content.read(_CHUNK_BYTES):
                digest.update(chunk)
        manifest.add(header.name, digest.digest(), bool(header.mode & 0o100))
    if manifest.hash() != expected_hash:
        raise _refused("its content is not what its hash says")


class BundleCache:
    """Bundles that have arrived, by hash; kept packed, so that no run can change the files of the next."""

    def __init__(self, folder: Path, *, keep: int = 20, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._folder = folder
        self._keep = keep
        self._limit_bytes = limit_bytes

    def get(self, bundle_hash: str) -> bytes | None:
        """The bundle, if it is here and whole; a damaged one is removed."""
        file = self._file(bundle_hash)
        try:
            data = read_plain(file, 2 * self._limit_bytes)
            verify(data, bundle_hash, limit_bytes=self._limit_bytes)
            os.utime(file)
        except FileNotFoundError:
            return None
        except (BundleError, OSError):
            with suppress(OSError):
                file.unlink(missing_ok=True)
            return None
        return data

    def put(self, bundle_hash: str, data: bytes) -> None:
        """Verify and store a bundle; beyond `keep` bundles, the least recently used are deleted."""
        verify(data, bundle_hash, limit_bytes=self._limit_bytes)
        with replacing(self._file(bundle_hash)) as file:
            file.write(data)
        keep_newest(self._folder.glob("*.tar.gz"), self._keep)

    def _file(self, bundle_hash: str) -> Path:
        if not _HASH.fullmatch(bundle_hash):
            raise _refused("its hash is not 64 hexadecimal digits")
        return self._folder / f"{bundle_hash}.tar.gz"


class _Manifest:
    """The text that is hashed: one line per file."""

    def __init__(self) -> None:
        self._lines: dict[bytes, bytes] = {}

    def add(self, name: str, digest: bytes, executable: bool) -> None:
        path = os.fsencode(name)
        self._lines[path] = b"%s %d %d %s\n" % (digest.hex().encode(), executable, len(path), path)

    def hash(self) -> str:
        return hashlib.sha256(b"".join(line for _, line in sorted(self._lines.items()))).hexdigest()


class _Bounded(io.RawIOBase):
    """Reads a decompressed stream up to a limit: a small archive can decompress to a very large one."""

    def __init__(self, stream: gzip.GzipFile, limit_bytes: int) -> None:
        self._stream = stream
        self._left = limit_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._stream.read(min(len(view), _CHUNK_BYTES))
        self._left -= len(data)
        if self._left < 0:
            raise _refused("it is larger than it may be")
        view[: len(data)] = data
        return len(data)


def _members(data: bytes, limit_bytes: int) -> "Iterator[tuple[tarfile.TarInfo, IO[bytes]]]":
    """The archive's files, each checked by its header before it is yielded."""
    seen: set[PurePosixPath] = set()
    parents: set[PurePosixPath] = set()
    left = limit_bytes
    stream = _Bounded(gzip.GzipFile(fileobj=io.BytesIO(data)), limit_bytes + MAX_FILES * _HEADER_BYTES)
    with _readable():
        archive = tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK_BYTES)  # noqa: SIM115  closing reads nothing
    while True:
        with _readable():
            header = archive.next()
            content = None if header is None else archive.extractfile(header) if header.isreg() else None
        if header is None:
            return
        path = _safe_path(header)
        left -= header.size
        if left < 0 or len(seen) >= MAX_FILES:
            raise _refused("it holds more than it may")
        if path in seen or path in parents or any(parent in seen for parent in path.parents):
            raise _refused(f"it holds {header.name!r} twice")
        seen.add(path)
        parents.update(path.parents)
        assert content is not None
        yield header, content


def _safe_path(header: tarfile.TarInfo) -> PurePosixPath:
    """The file's path, if it is a plain file that stays inside the folder."""
    path = PurePosixPath(header.name)
    if (
        path.is_absolute()
        or ".." in path.parts
        or str(path) != header.name
        or path == PurePosixPath()
        or "\0" in header.name
    ):
        raise _refused(f"it holds {header.name!r}, which leads out of its folder")
    if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or header.issparse():
        raise _refused(f"it holds {header.name!r}, which is not a plain file")
    return path


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise _refused(f"it cannot be read ({error})") from None


def _refused(reason: str) -> BundleError:
    return BundleError(f"a bundle is refused: {reason}", fix="start the run again from the machine that has the script")


def _check_size(folder: Path, files: tuple[str, ...], limit_bytes: int) -> None:
    sizes = {name: (folder / name).stat().st_size for name in files}
    total = sum(sizes.values())
    if total <= limit_bytes:
        return
    biggest = sorted(sizes, key=lambda name: -sizes[name])[:_FEW]
    listed = ", ".join(f"{name} ({_megabytes(sizes[name])})" for name in biggest)
    raise BundleError(
        f"the script's folder {folder} is {_megabytes(total)}, more than the {_megabytes(limit_bytes)} that are sent"
        f" to other machines; the biggest files: {listed}",
        fix=f"keep data out of it: echo '/{biggest[0]}' >> {folder / '.gitignore'}",
    )


def _megabytes(size: int) -> str:
    return f"{size / 1024**2:.1f} MB"
