"""A folder's catalogue lists its files as they are; what lies outside the folder is never in it."""

import os

import libtorrent
import pytest

from potluck.core.errors import SharingError
from potluck.sharing.catalogue import SampleGuess, located, make_catalogue, read_catalogue


def fill(folder, **files):
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def test_files_are_listed_by_name_with_their_sizes(tmp_path):
    folder = fill(tmp_path / "pets", dog__b=b"12345", cat__a=b"123", empty=b"")
    catalogue = read_catalogue(make_catalogue(folder, tmp_path / "kept"))
    assert catalogue.name == "pets"
    assert [(file.path, file.size) for file in catalogue.files] == [("cat/a", 3), ("dog/b", 5), ("empty", 0)]
    assert catalogue.size_bytes == 8


def test_a_folder_that_did_not_change_is_not_read_again(tmp_path):
    folder = fill(tmp_path / "pets", cat=b"1234")
    first = make_catalogue(folder, tmp_path / "kept")
    status = (folder / "cat").stat()
    (folder / "cat").write_bytes(b"5678")
    os.utime(folder / "cat", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert make_catalogue(folder, tmp_path / "kept") == first
    (folder / "cat").write_bytes(b"5678")
    assert make_catalogue(folder, tmp_path / "kept") != first


@pytest.mark.parametrize("content", [b"", b"no catalogue", b"d4:infod4:name1:aee", b"i5e"])
def test_what_is_no_catalogue_is_refused(content):
    with pytest.raises(SharingError, match="damaged"):
        read_catalogue(content)


def test_paths_stay_inside_the_folder():
    made = {
        b"info": {
            b"name": b"pets",
            b"piece length": 16384,
            b"pieces": bytes(20),
            b"files": [{b"length": 5, b"path": [b"..", b"..", b"etc", b"passwd"]}, {b"length": 5, b"path": [b"a"]}],
        }
    }
    catalogue = read_catalogue(libtorrent.bencode(made))  # libtorrent leaves the ".." out
    assert all(".." not in file.path and not file.path.startswith("/") for file in catalogue.files)


def test_a_folder_without_content_or_with_a_pipe_is_refused(tmp_path):
    (tmp_path / "none").mkdir()
    with pytest.raises(SharingError, match="nothing in"):
        make_catalogue(tmp_path / "none", tmp_path / "kept")
    with pytest.raises(SharingError, match="no folder"):
        make_catalogue(tmp_path / "missing", tmp_path / "kept")
    folder = fill(tmp_path / "pets", cat=b"1234")
    os.mkfifo(folder / "pipe")
    with pytest.raises(SharingError, match="is not a file"):
        make_catalogue(folder, tmp_path / "kept")


def test_a_sample_is_guessed_to_be_a_file_or_a_place_in_the_bytes(tmp_path):
    folder = fill(tmp_path / "pets", readme__txt=b"x", **{f"a{number}.bin": bytes(300_000) for number in range(10)})
    catalogue = read_catalogue(make_catalogue(folder, tmp_path / "kept"))
    guess = SampleGuess(catalogue)
    file = next(one for one in catalogue.files if one.path == "a7.bin")
    assert list(guess.pieces([7], 10)) == list(catalogue.pieces(file, 0, file.size))
    (piece,) = guess.pieces([500], 1000)
    assert piece == catalogue.size_bytes // 2 // catalogue.piece_bytes
    assert list(guess.pieces([-1, 1000], 1000)) == []


def test_all_pieces_of_a_sample_in_one_file_are_guessed(tmp_path):
    folder = fill(tmp_path / "rows", rows=os.urandom(10 * 100_000))
    catalogue = read_catalogue(make_catalogue(folder, tmp_path / "kept"))
    assert catalogue.piece_bytes == 128 << 10
    assert list(SampleGuess(catalogue).pieces([0, 1], 10)) == [0, 0, 1]


def test_a_folder_behind_a_link_keeps_the_name_that_the_user_gave_it(tmp_path):
    (tmp_path / "disk" / "images").mkdir(parents=True)
    (tmp_path / "disk" / "images" / "a.txt").write_text("a")
    (tmp_path / "data").symlink_to(tmp_path / "disk" / "images")
    assert located(tmp_path / "disk" / ".." / "data") == tmp_path / "data"
    assert read_catalogue(make_catalogue(tmp_path / "data", tmp_path / "kept")).name == "data"


def test_a_link_to_a_folder_inside_is_not_left_out_in_silence(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a")
    (tmp_path / "data" / "train").symlink_to(tmp_path)
    with pytest.raises(SharingError, match="data/train is a link to a folder"):
        make_catalogue(tmp_path / "data", tmp_path / "kept")
