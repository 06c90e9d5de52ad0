"""Frozen parameters that came from another machine, kept on disk for the next run: ~/.potluck/frozen/DIGEST.

A file has a parameter's bytes and nothing else. Type and shape are those of the model that asks, and the digest is
checked whenever a file is read.
"""

import re
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from potluck.core.atomic import clear_leftovers, replacing
from potluck.engine.compute.tensor_bytes import chunks, digest_of

_DIGEST = re.compile(r"[0-9a-f]{16}")
_SPARE_BYTES = 256 << 20  # of the disk, for everything else that a run writes
_CLOSE_S = 10.0


class FrozenCache:
    """A folder of parameters by digest. What was used longest ago is removed when there is no room."""

    def __init__(self, folder: Path, limit_bytes: int | None = None) -> None:
        """`limit_bytes`: the most that all files may take; by default half of the disk space that they could have."""
        self.folder = folder
        self._limit_bytes = limit_bytes
        self._writing: threading.Thread | None = None

    def has(self, digest: str, num_bytes: int) -> bool:
        """Whether the parameter with this digest and size is here."""
        if not _DIGEST.fullmatch(digest):  # it comes from another machine, and becomes a path
            return False
        try:
            return (self.folder / digest).stat().st_size == num_bytes
        except OSError:
            return False

    def read(self, digest: str, into: Tensor) -> bool:
        """Read the parameter's values; False if the file is damaged, which is removed then."""
        path = self.folder / digest
        try:
            with path.open("rb") as file:
                is_whole = all(file.readinto(piece) == len(piece) for piece in chunks(into))
        except OSError:
            return False
        if not is_whole or digest_of([into]) != digest:
            path.unlink(missing_ok=True)
            return False
        with suppress(OSError):
            path.touch()  # used now
        return True

    def keep(self, parameters: Mapping[str, Tensor]) -> None:
        """Write these parameters, by digest, on a thread of its own: other machines wait for this one to train."""
        if not parameters:
            return
        self._writing = threading.Thread(
            target=self._write, args=(dict(parameters),), name="potluck-frozen-cache", daemon=True
        )
        self._writing.start()

    def close(self) -> None:
        """Wait until what `keep` was given is on disk, some seconds at most."""
        if self._writing is not None:
            self._writing.join(_CLOSE_S)

    def _write(self, parameters: Mapping[str, Tensor]) -> None:
        with suppress(OSError):  # what is not kept is fetched again
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            clear_leftovers(self.folder)
            for digest, values in parameters.items():
                if _DIGEST.fullmatch(digest) and digest_of([values]) == digest and self._make_room(values.nbytes):
                    with replacing(self.folder / digest) as file:
                        for piece in chunks(values):
                            file.write(piece)

    def _make_room(self, num_bytes: int) -> bool:
        """Remove files, the longest unused first, until so many bytes fit; False if they cannot."""
        used = {path: path.stat() for path in self.folder.iterdir() if _DIGEST.fullmatch(path.name)}
        total = sum(one.st_size for one in used.values())
        free = shutil.disk_usage(self.folder).free - _SPARE_BYTES
        limit = (free + total) // 2 if self._limit_bytes is None else self._limit_bytes
        oldest = sorted(used, key=lambda path: used[path].st_mtime)
        if num_bytes > min(limit, free + total):
            return False
        while oldest and (total + num_bytes > limit or free < num_bytes):
            path = oldest.pop(0)
            path.unlink(missing_ok=True)
            total, free = total - used[path].st_size, free + used[path].st_size
        return True
