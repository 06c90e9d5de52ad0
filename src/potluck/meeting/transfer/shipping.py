"""Sends a run's files to the host: bytes with their offset, so a delivery may be lost, doubled, late or cut off.

The files only ever grow, and the host's copy is the only record of what has arrived: a delivery that starts beyond the
end of the copy is not taken, and a delivery that overlaps the copy must have the same bytes there.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from potluck.core.disk import named
from potluck.core.errors import ShippingError
from potluck.core.shell_words import quote

Send: TypeAlias = Callable[[str, int, bytes], int]
"""Sends (file name, offset, bytes) to the host's `receive`, and returns its answer: the size of the host's copy.

Raises ShippingError if the host refuses the file; any other exception means: try again later.
"""

BATCH_BYTES = 256 * 1024
MAX_DELIVERY_BYTES = 4 * 1024 * 1024
MOST_FILE_BYTES = 16 << 30
MOST_FILES = {"events": 256, "logs": 4096, "traces": 256}
"""The most files of one machine in one run, by folder."""
_PROOF_BYTES = 4096  # the end of the host's copy, sent again after an interruption to see that the files agree
_SCAN_BYTES = 64 * 1024

_STEM = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}"  # characters of a machine's name, but no hidden file
_FILE_NAME = re.compile(rf"events/{_STEM}\.jsonl|logs/{_STEM}\.log|traces/{_STEM}\.json\.gz")
_NOT_PLAIN = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)  # a link, a link to a folder, a folder, a pipe
_NO_FOLDER = (FileNotFoundError, NotADirectoryError, PermissionError)
_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has only fsync, which is slower


def receive(run_folder: Path, file_name: str, offset: int, data: bytes, *, machine: str | None = None) -> int:
    """Append the new bytes of a delivery to the host's copy; returns the size of the copy.

    A delivery beyond the copy's end changes nothing: the size tells the sender where to go on.
    With `machine`, only that machine's files are taken. A full disk raises OSError, and no bytes are lost.
    """
    check_file_name(file_name, machine)
    if offset < 0 or len(data) > MAX_DELIVERY_BYTES:
        raise ShippingError(
            f"a delivery of {len(data)} bytes at {offset} for {file_name} is not one of Potluck's",
            fix="run the same version of potluck on every machine",
        )
    if offset + len(data) > MOST_FILE_BYTES:
        raise ShippingError(
            f"{file_name} would become larger than {MOST_FILE_BYTES >> 30} GiB, and a host takes no larger file",
            fix="let the script print less; the file stays on its machine",
        )
    if machine is not None:
        _check_number(run_folder, file_name, machine)
    with _naming(run_folder / file_name), _opened(run_folder, file_name, os.O_RDWR | os.O_CREAT) as file:
        size = os.fstat(file).st_size
        if offset <= size:
            known, fresh = data[: size - offset], data[size - offset :]
            if _read(file, offset, len(known)) != known:
                raise _not_the_same(file_name, size)
            # Written by position, not appended: the same delivery taken twice at once gives the same bytes.
            _write(file, size, fresh)
        return os.fstat(file).st_size


def _check_number(run_folder: Path, file_name: str, machine: str) -> None:
    """Raise if the machine has too many files in this run: one event file a worker and two logs a start are normal."""
    if (run_folder / file_name).exists():
        return
    kind = file_name.split("/", maxsplit=1)[0]
    number = sum(1 for file in (run_folder / kind).glob(f"{machine}-*"))
    if number >= MOST_FILES[kind]:
        raise ShippingError(
            f"{machine} has {number} files in {kind}/ of this run, and a host takes no more",
            fix="give the run another name; the file stays on its machine",
        )


def check_file_name(file_name: str, machine: str | None = None) -> str:
    """The name of an event, log or trace file, of a worker of `machine` if given; ShippingError for other names."""
    allowed = _FILE_NAME.fullmatch(file_name)
    if allowed and machine is not None:
        name = re.escape(machine)
        more = r"(?:\.[A-Za-z0-9._-]+)?"
        kinds = rf"events/{name}-\d+\.jsonl|logs/{name}-\d+{more}\.log|traces/{name}-\d+{more}\.json\.gz"
        allowed = re.fullmatch(kinds, file_name)
    if not allowed:
        whose = "a run's" if machine is None else f"{machine}'s"
        raise ShippingError(
            f"{file_name!r} is not one of {whose} event, log or trace files",
            fix="keep own files elsewhere than in a run's events/, logs/ and traces/",
        )
    return file_name


class Shipper:
    """The sending side: sends the bytes of a machine's run folder that the host does not have.

    Of an event file only whole lines are sent, after they are safe from a power cut, since a run that goes on
    cuts a half-written line off its file.
    """

    def __init__(
        self, run_folder: Path, send: Send, *, batch_bytes: int = BATCH_BYTES, machine: str | None = None
    ) -> None:
        if not 0 < batch_bytes <= MAX_DELIVERY_BYTES:
            raise ValueError(f"batch_bytes is {batch_bytes}, not between 1 and {MAX_DELIVERY_BYTES}")
        self._folder = run_folder
        self._machine = machine
        """Only this machine's files are sent: a successor of the host has copies of the others'."""
        self._send = send
        self._batch_bytes = batch_bytes
        self._proof_bytes = min(_PROOF_BYTES, batch_bytes // 2)
        self._next: dict[str, int] = {}  # the offset to send from, by the host's last answer
        self.refused: dict[str, ShippingError] = {}
        """Files that cannot be sent, and why. These files are not tried again; the other files go on."""

    def ship(self) -> int:
        """Send at most one batch of each file; returns how many bytes remain.

        Any exception of `send` but ShippingError is raised, and the next call asks the host for its sizes again.
        """
        remaining = 0
        for file_name in sorted({name for name, _ in entries_of(self._folder, self._machine)} - self.refused.keys()):
            try:
                remaining += self._ship_file(file_name)
            except ShippingError as error:
                self.refused[file_name] = error
            except BaseException:
                self.ask_again()
                raise
        return remaining

    def ask_again(self) -> None:
        """Forget the host's earlier answers: a host that was out of reach may have lost bytes in a power cut."""
        self._next.clear()

    def _ship_file(self, file_name: str) -> int:
        start = there = self._next.get(file_name, -1)
        if there < 0:
            there = self._send(file_name, 0, b"")
            start = self._next[file_name] = self._step_back(there)
        size = (self._folder / file_name).lstat().st_size
        if size == start == there:
            return 0
        with _opened(self._folder, file_name, os.O_RDONLY) as file:
            end = _last_line_end(file, start, size) if file_name.endswith(".jsonl") else size
            if there > end:
                raise _not_the_same(file_name, there)
            if start == end:
                return 0
            _sync_data(file)
            data = _read(file, start, min(self._batch_bytes, end - start))
        there = self._send(file_name, start, data)
        if there > end:
            raise _not_the_same(file_name, there)
        self._next[file_name] = there if there == start + len(data) else self._step_back(there)
        return end - self._next[file_name]

    def _step_back(self, size_there: int) -> int:
        """Where to continue a copy that this process has not just sent: a little before its end, to compare."""
        return max(0, size_there - self._proof_bytes)


def entries_of(run_folder: Path, machine: str | None = None) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The name and the entry of every event, log and trace file in a run's folder, of a worker of `machine` if given.

    A run of days has hundreds of log files, and this is asked several times a second.
    """
    for folder in MOST_FILES:
        with suppress(*_NO_FOLDER), os.scandir(run_folder / folder) as entries:
            yield from ((name, entry) for entry in entries if is_file_name(name := f"{folder}/{entry.name}", machine))


@lru_cache(maxsize=1 << 14)
def is_file_name(file_name: str, machine: str | None = None) -> bool:
    """Whether this names an event, log or trace file, of a worker of `machine` if given."""
    try:
        check_file_name(file_name, machine)
    except ShippingError:
        return False
    return True


def _last_line_end(file: int, start: int, size: int) -> int:
    """The end of the last whole line after start, or start; less than start if the file has shrunk."""
    if size < start:
        return size
    high = size
    while high > start:
        low = max(start, high - _SCAN_BYTES)
        newline = _read(file, low, high - low).rfind(b"\n")
        if newline >= 0:
            return low + newline + 1
        high = low
    return start


@contextmanager
def _opened(run_folder: Path, file_name: str, flags: int) -> Iterator[int]:
    """The file's descriptor. No link below the run folder is followed, and nothing but a plain file is opened."""
    folder_name, name = check_file_name(file_name).split("/")
    safe = os.O_NOFOLLOW | os.O_CLOEXEC
    with ExitStack() as stack:

        def enter(path: str | Path, flags: int, inside: int | None = None) -> int:
            descriptor = os.open(path, flags, 0o644, dir_fd=inside)
            stack.callback(os.close, descriptor)
            return descriptor

        run = enter(run_folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if flags & os.O_CREAT:
            with suppress(FileExistsError):
                os.mkdir(folder_name, dir_fd=run)
        try:
            folder = enter(folder_name, os.O_RDONLY | os.O_DIRECTORY | safe, run)
            file = enter(name, flags | os.O_NONBLOCK | safe, folder)
        except OSError as error:
            if error.errno not in _NOT_PLAIN:
                raise
            file = -1
        if file < 0 or not stat.S_ISREG(os.fstat(file).st_mode):
            raise ShippingError(
                f"{run_folder / file_name} is a link or not a plain file",
                fix=f"remove it: rm {quote(run_folder / file_name)}",
            )
        yield file


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the file's full path into a disk error: the system names none, or only the path's last part."""
    try:
        yield
    except OSError as error:
        raise named(error, path) from None


def _read(file: int, offset: int, length: int) -> bytes:
    parts = []
    while length > 0 and (part := os.pread(file, length, offset)):
        parts.append(part)
        offset, length = offset + len(part), length - len(part)
    return b"".join(parts)


def _write(file: int, offset: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(file, left, offset)
        offset, left = offset + written, left[written:]


def _not_the_same(file_name: str, size: int) -> ShippingError:
    return ShippingError(
        f"{file_name} is not what the host has under that name: the two differ within its first {size} bytes",
        fix=f"give the run another name, or move the host's {file_name} away if this machine's is the right one",
    )
