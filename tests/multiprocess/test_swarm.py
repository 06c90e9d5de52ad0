"""Pieces between two sessions of libtorrent on loopback: what one says that it has can be read at once."""

import hashlib
import os
import time

import pytest

from potluck.sharing.catalogue import make_catalogue, read_catalogue
from potluck.sharing.messages import SharingPeer
from potluck.sharing.place import DataPlace
from potluck.sharing.swarm import Swarm

MEGABYTES = 48


@pytest.fixture
def sessions(tmp_path):
    """A folder's sender and receiver, which know each other."""
    source = tmp_path / "source" / "things"
    source.mkdir(parents=True)
    (source / "large").write_bytes(os.urandom(MEGABYTES << 20))
    for number in range(50):
        (source / f"small-{number:02}").write_bytes(os.urandom(30_000))
    content = make_catalogue(source, tmp_path / "kept")
    catalogue, place = read_catalogue(content), DataPlace(tmp_path / "data" / "0123", "things")
    place.keep_catalogue(hashlib.sha256(content).hexdigest(), content)
    sender, receiver = Swarm("127.0.0.1"), Swarm("127.0.0.1")
    sender.seed(catalogue, source)
    receiver.fetch(catalogue, place, is_whole=place.open(catalogue))
    until = time.monotonic() + 10
    while not sender.port:
        assert time.monotonic() < until
        time.sleep(0.01)
    receiver.connect([SharingPeer("127.0.0.1", sender.port)])
    return sender, receiver, source, place


@pytest.mark.timeout(120)
def test_a_piece_that_has_arrived_is_on_the_disk(sessions):
    sender, receiver, source, place = sessions
    folder, large = receiver.folders["things"], (source / "large").read_bytes()
    file, size = folder.files["large"], folder.catalogue.piece_bytes
    folder.fetch_all()
    missing = set(folder.catalogue.pieces(file, 0, file.size))
    while missing:
        sender.advance(is_due=False)
        receiver.advance(is_due=False)
        for piece in [one for one in missing if folder.have([one])]:
            missing.discard(piece)
            start = max(0, piece * size - file.offset)
            with (place.arriving / "things" / "large").open("rb") as arrived:
                arrived.seek(start)
                content = arrived.read(min(size, file.size - start))
            assert content == large[start : start + len(content)]


@pytest.mark.timeout(60)
def test_what_is_awaited_comes_before_what_is_only_expected(sessions):
    sender, receiver, _, _ = sessions
    folder = receiver.folders["things"]
    file = folder.files["large"]
    num_pieces = len(folder.catalogue.pieces(file, 0, file.size))
    folder.expect(list(range(num_pieces // 2)), 0, num_pieces)
    awaited = folder.catalogue.pieces(file, file.size - 1, file.size)
    folder.hurry(awaited)
    while not folder.have(awaited):
        sender.advance(is_due=False)
        receiver.advance(is_due=False)
        time.sleep(0.002)
    assert folder.have_bytes < 0.5 * folder.catalogue.size_bytes
