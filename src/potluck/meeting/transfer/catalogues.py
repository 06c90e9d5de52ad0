"""Catalogues of shared folders, which the host keeps for the machines that get the folders."""

import hashlib
import os
from pathlib import Path

from potluck.core.atomic import replacing
from potluck.core.errors import MeetingError
from potluck.core.newest_files import keep_newest
from potluck.core.plain_file import read_plain
from potluck.sharing.catalogue import MOST_CATALOGUE_BYTES

_KEEP = 50


class KeptCatalogues:
    """The host's side: by SHA-256, the last ones used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, digest: str, content: bytes) -> None:
        """Keep a catalogue; MeetingError unless it has this hash."""
        if hashlib.sha256(content).hexdigest() != digest:
            raise MeetingError("the list of a folder's files arrived damaged", fix="type the command again")
        with replacing(self._folder / digest) as file:
            file.write(content)
        keep_newest(self._folder.glob("[0-9a-f]*"), _KEEP)

    def get(self, digest: str) -> bytes:
        """The catalogue; MeetingError if it is not here."""
        try:
            os.utime(self._folder / digest)
            return read_plain(self._folder / digest, MOST_CATALOGUE_BYTES)
        except OSError:
            raise MeetingError(
                "the host does not have the list of a folder's files", fix="start the run again with --data"
            ) from None
