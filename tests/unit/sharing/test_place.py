"""Where data arrives: a file is seen when it is whole, a changed one is not trusted, and old folders make room."""

import hashlib
import os
import shutil

import pytest

from potluck.core.errors import SharingError
from potluck.sharing.catalogue import make_catalogue, read_catalogue
from potluck.sharing.place import DataPlace, make_room


@pytest.fixture
def catalogue(tmp_path):
    source = tmp_path / "source" / "pets"
    source.mkdir(parents=True)
    (source / "cat").write_bytes(b"meow")
    (source / "dog").write_bytes(b"bark")
    (source / "fish").write_bytes(b"")
    return read_catalogue(make_catalogue(source, tmp_path / "kept"))


@pytest.fixture
def place(tmp_path, catalogue):
    place = DataPlace(tmp_path / "data" / "0123", "pets")
    place.folder.mkdir(parents=True)
    assert not place.open(catalogue)
    return place


def arrive(place, catalogue):
    (place.arriving / "pets").mkdir(parents=True, exist_ok=True)
    for file, content in zip(catalogue.files, (b"meow", b"bark", b""), strict=True):
        (place.arriving / "pets" / file.path).write_bytes(content)
        place.show(file)


def test_a_file_that_has_not_arrived_has_a_name_and_no_content(place):
    assert sorted(path.name for path in place.view.iterdir()) == ["cat", "dog", "fish"]
    with pytest.raises(FileNotFoundError):
        (place.view / "cat").open()
    assert (place.view / "fish").read_bytes() == b""


@pytest.mark.parametrize("name", ["catalogue", "arriving", "complete", "seen"])
def test_a_folder_may_have_the_name_of_a_file_of_ours(tmp_path, name):
    source = tmp_path / "source" / name
    source.mkdir(parents=True)
    (source / "cat").write_bytes(b"meow")
    content = make_catalogue(source, tmp_path / "kept")
    catalogue, place = read_catalogue(content), DataPlace(tmp_path / "data" / "0123", name)
    place.keep_catalogue(hashlib.sha256(content).hexdigest(), content)
    assert not place.open(catalogue)
    (place.arriving / name).mkdir(parents=True, exist_ok=True)
    (place.arriving / name / "cat").write_bytes(b"meow")
    place.show(catalogue.files[0])
    place.finish(catalogue)
    assert place.open(catalogue)
    assert (place.view / "cat").read_bytes() == b"meow"


def test_what_has_arrived_is_seen_and_found_again(place, catalogue):
    arrive(place, catalogue)
    place.finish(catalogue)
    assert (place.view / "dog").read_bytes() == b"bark"
    assert place.open(catalogue)
    assert (place.view / "dog").read_bytes() == b"bark"


def test_a_file_that_was_changed_or_removed_is_checked_again(place, catalogue):
    arrive(place, catalogue)
    place.finish(catalogue)
    (place.view / "cat").chmod(0o644)
    (place.view / "cat").write_bytes(b"MEOW")
    assert not place.open(catalogue)
    assert (place.view / "cat").is_symlink()


def fill(folder, size, age_s):
    (folder / "arriving").mkdir(parents=True)
    (folder / "catalogue").touch()
    (folder / "arriving" / "x").write_bytes(os.urandom(size))
    os.utime(folder, (age_s, age_s))


def test_the_longest_unused_folders_go_first_and_not_more_than_needed(tmp_path, place):
    places = place.folder.parent
    for age, name in enumerate(("oldest", "older", "old")):
        fill(places / name, 1 << 20, 1_000_000 + age)
    make_room(places, place, 1 << 20, limit_bytes=(3 << 20) + 8192)
    assert {one.name for one in places.iterdir()} == {"0123", "older", "old"}
    with pytest.raises(SharingError, match="POTLUCK_DATA_LIMIT"):
        make_room(places, place, 2 << 20, limit_bytes=1 << 20, in_use=[places / "old"])
    assert {one.name for one in places.iterdir()} == {"0123", "old"}


def test_too_little_space_is_told_with_numbers(place):
    free = shutil.disk_usage(place.folder).free
    with pytest.raises(SharingError, match=r"pets needs [\d,.]+ GB here, and .* has [\d,.]+ GB to spare"):
        make_room(place.folder.parent, place, free + (1 << 30), None)
    with pytest.raises(SharingError, match="POTLUCK_DATA_LIMIT"):
        make_room(place.folder.parent, place, 2 << 20, limit_bytes=1 << 20)
