"""libtorrent's session in the sharing process: sends and receives the pieces of folders."""

import os
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from potluck.sharing.catalogue import Catalogue, DataFile, SampleGuess, load_libtorrent
from potluck.sharing.messages import SharingPeer
from potluck.sharing.place import DataPlace

_MOST_DEADLINES = 256
_MOST_SHOWN = 200
_RETRY_S = 5.0
# libtorrent's priorities; far apart, because a piece that few machines have counts for more than its priority.
_NOW, _SOON, _NORMAL = 7, 4, 1
_SETTINGS = {
    # Nobody is looked for: an agent names the peers, and the gates lead to them over one encrypted connection.
    "enable_dht": False,
    "enable_lsd": False,
    "enable_upnp": False,
    "enable_natpmp": False,
    "enable_outgoing_utp": False,
    "enable_incoming_utp": False,
    "out_enc_policy": 2,
    "in_enc_policy": 2,
    "allow_multiple_connections_per_ip": True,
    "close_redundant_connections": False,  # a machine that wants nothing now wants something in a moment
    "min_reconnect_time": 1,
    "max_failcount": 1_000_000,
    "peer_connect_timeout": 5,
    "unchoke_slots_limit": -1,
    "connections_limit": 1000,
    # 2 MB on their way, enough for 1 Gbit/s: what is urgent waits behind what was asked for before.
    "max_out_request_queue": 128,
    "max_allowed_in_request_queue": 4000,
    "request_queue_time": 1,
    "active_limit": -1,
    "active_seeds": -1,
    "active_downloads": -1,
    "user_agent": "potluck",
}


class Swarm:
    """The session, and the folders that it shares."""

    def __init__(self, address: str) -> None:
        self._lt = load_libtorrent()
        kinds = self._lt.alert.category_t
        mask = kinds.error_notification | kinds.storage_notification | kinds.piece_progress_notification
        settings = self._lt.session_params({**_SETTINGS, "listen_interfaces": f"{address}:0", "alert_mask": mask})
        # Writes a block before it goes on, and reads a piece from the disk to check it: what it has can be read. The
        # others keep blocks in memory for a while, and say that they have a piece before it is written.
        settings.disk_io_constructor = "posix_disk_io_constructor"
        self._session = self._lt.session(settings)
        self.folders: dict[str, FolderTransfer] = {}
        self.trouble = ""
        self._troubled_at = 0.0

    @property
    def port(self) -> int:
        """The port that peers dial; 0 until the session listens."""
        return int(self._session.listen_port()) if self._session.is_listening() else 0

    def seed(self, catalogue: Catalogue, source: Path) -> None:
        """Send pieces of a folder of this machine."""
        self._add(catalogue, source.parent, is_whole=True, place=None)

    def fetch(self, catalogue: Catalogue, place: DataPlace, *, is_whole: bool) -> None:
        """Receive a folder; send the pieces that are here."""
        self._add(catalogue, place.arriving, is_whole=is_whole, place=place)

    def _add(self, catalogue: Catalogue, folder: Path, *, is_whole: bool, place: DataPlace | None) -> None:
        wanted = self._lt.add_torrent_params()
        wanted.ti = catalogue.torrent
        wanted.save_path = str(folder)
        flags = self._lt.torrent_flags
        wanted.flags = flags.seed_mode if is_whole else flags.update_subscribe
        handle = self._session.add_torrent(wanted)
        if not is_whole:
            # Pieces, not files: what belongs to a file of priority 0 libtorrent writes elsewhere.
            handle.prioritize_pieces([0] * int(catalogue.torrent.num_pieces()))
        self.folders[catalogue.name] = FolderTransfer(self._lt, handle, catalogue, place, is_whole=is_whole)

    def connect(self, peers: Iterable[SharingPeer]) -> None:
        """Dial peers; libtorrent ignores those that it is connected to."""
        for folder in self.folders.values():
            for peer in peers:
                folder.handle.connect_peer((peer.address, peer.port))

    def advance(self, *, is_due: bool) -> None:
        """Note what has arrived and what has gone wrong; `is_due`: look at all pieces, not only at the newest."""
        for alert in self._session.pop_alerts():
            if isinstance(alert, self._lt.piece_finished_alert):
                for folder in self.folders.values():
                    folder.note(alert)
            elif isinstance(alert, self._lt.file_error_alert | self._lt.torrent_error_alert):
                self.trouble, self._troubled_at = _in_words(alert.message()), time.monotonic()
            elif isinstance(alert, self._lt.hash_failed_alert):
                self.trouble, self._troubled_at = "a piece arrived damaged, and is fetched again", time.monotonic()
        if self.trouble and time.monotonic() > self._troubled_at + _RETRY_S:
            self.trouble = ""
            for folder in self.folders.values():
                folder.handle.clear_error()
                folder.handle.resume()
        for folder in self.folders.values():
            folder.advance(is_due=is_due)


class FolderTransfer:
    """One folder on its way from or to this machine."""

    def __init__(
        self, library: Any, handle: Any, catalogue: Catalogue, place: DataPlace | None, *, is_whole: bool
    ) -> None:
        self._lt = library
        self.handle = handle
        self.catalogue = catalogue
        self.files = {file.path: file for file in catalogue.files}
        self.is_whole = is_whole
        self._guess = SampleGuess(catalogue)
        self._place = place
        self._here: set[int] = set()
        self._awaited: set[int] = set()
        """Pieces that somebody waits for."""
        self._raised: dict[int, int] = {}
        """The priorities of pieces that come before others."""
        self._left: dict[str, int] = {}
        """How many pieces each file lacks that is not shown yet."""
        self._files_of: dict[int, list[DataFile]] = {}
        self._to_show: deque[DataFile] = deque()
        self._is_fetching_all = False
        if not is_whole:
            for file in filter(lambda one: one.size, catalogue.files):
                pieces = catalogue.pieces(file, 0, file.size)
                self._left[file.path] = len(pieces)
                for piece in pieces:
                    self._files_of.setdefault(piece, []).append(file)

    @property
    def is_behind(self) -> bool:
        """Whether there are files to show at once."""
        return bool(self._to_show)

    @property
    def have_bytes(self) -> int:
        size = self.catalogue.size_bytes
        return size if self.is_whole else min(size - 1, len(self._here) * self.catalogue.piece_bytes)

    def have(self, pieces: Iterable[int]) -> bool:
        """Whether all these pieces are on this machine's disk."""
        return self.is_whole or all(piece in self._here for piece in pieces)

    def around(self, file: DataFile, start: int, end: int) -> tuple[int, int]:
        """All bytes that are here around bytes of a file that are here."""
        if self.is_whole:
            return 0, file.size
        pieces, size = self.catalogue.pieces(file, start, end), self.catalogue.piece_bytes
        first, last = pieces[0], pieces[-1]
        while first - 1 in self._here:
            first -= 1
        while last + 1 in self._here:
            last += 1
        return max(0, first * size - file.offset), min(file.size, (last + 1) * size - file.offset)

    def hurry(self, pieces: Iterable[int]) -> None:
        """Somebody waits for these pieces now: they come before all others."""
        for piece in pieces:
            if piece not in self._here and piece not in self._awaited and len(self._awaited) < _MOST_DEADLINES:
                self._awaited.add(piece)
                self._raised[piece] = _NOW
                self.handle.piece_priority(piece, _NOW)
                self.handle.set_piece_deadline(piece, 0)

    def expect(self, samples: list[int], num_now: int, num_samples: int) -> None:
        """The dataset's samples with these numbers are needed soon, the first `num_now` of them in this step."""
        if self.is_whole:
            return
        soon = dict.fromkeys(self._guess.pieces(samples[num_now:], num_samples), _SOON)
        now = dict.fromkeys(self._guess.pieces(samples[:num_now], num_samples), _NOW)
        raised = {
            piece: priority
            for piece, priority in (soon | now).items()
            if piece not in self._here and self._raised.get(piece, _NORMAL) < priority
        }
        self._raised |= raised
        self.handle.prioritize_pieces(list(raised.items()))

    def fetch_all(self) -> None:
        """Fetch also what nobody has asked for; before this call, processor and link are for what is urgent."""
        if not self._is_fetching_all and not self.is_whole:
            self._is_fetching_all = True
            num_pieces = int(self.catalogue.torrent.num_pieces())
            self.handle.prioritize_pieces([self._raised.get(piece, _NORMAL) for piece in range(num_pieces)])

    def note(self, alert: Any) -> None:
        """A new piece has been written, of this folder or of another one."""
        if alert.handle == self.handle:
            self._note(alert.piece_index)

    def advance(self, *, is_due: bool) -> None:
        """Show some of the files that are complete; `is_due`: look for pieces that were here before, or not told of."""
        if self.is_whole or self._place is None:
            return
        if is_due:
            here = self.handle.status(self._lt.torrent_handle.query_pieces).pieces
            for piece in {piece for piece, is_here in enumerate(here) if is_here} - self._here:
                self._note(piece)
        for _ in range(min(len(self._to_show), _MOST_SHOWN)):
            self.show(self._to_show.popleft())
        if not self._left:
            self._place.finish(self.catalogue)
            self.is_whole = True

    def _note(self, piece: int) -> None:
        """A piece is on the disk, as it should be."""
        if piece in self._here:
            return
        self._here.add(piece)
        for file in self._files_of.get(piece, ()):
            self._left[file.path] -= 1
            if not self._left[file.path]:
                self._to_show.append(file)
        self._awaited.discard(piece)
        self._raised.pop(piece, None)

    def show(self, file: DataFile) -> None:
        """The whole file is here: put it where scripts see it."""
        if self._place is not None and self._left.get(file.path) == 0:
            self._place.show(file)
            del self._left[file.path]

    def lengthen(self, file: DataFile) -> None:
        """Give a file of which pieces are here its full length, so that it can be mapped into memory."""
        if self._place is not None and not self.is_whole:
            path = self._place.arriving / self._place.name / file.path
            if path.stat().st_size < file.size:
                os.truncate(path, file.size)


def _in_words(message: str) -> str:
    return " ".join(message.split())[:280]
