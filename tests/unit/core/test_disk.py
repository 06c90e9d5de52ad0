"""Full and locked disks become a sentence with the file and what to type; other errors are left alone."""

import errno
import os

import pytest

from potluck.core.atomic import write_text
from potluck.core.disk import as_disk_error, full_disk_line, is_full


@pytest.fixture
def full_disk(monkeypatch):
    """Every sync fails as on a full disk: what was buffered does not fit."""

    def fail(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)


def test_a_file_that_a_full_disk_does_not_take_is_named(full_disk, tmp_path):
    path = tmp_path / "roster.json"
    path.write_text("before")
    with pytest.raises(OSError, match="No space") as raised:
        write_text(path, "after")
    error = as_disk_error(raised.value)
    assert error.args[0] == f"{path} cannot be written: the disk that holds it is full"
    assert error.fix == f"free space: df -h {tmp_path}"
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["roster.json"]


@pytest.mark.parametrize(
    ("number", "words"), [(errno.EROFS, "read-only"), (errno.EACCES, "may not write"), (errno.EDQUOT, "used up")]
)
def test_each_reason_has_its_words(number, words):
    error = as_disk_error(OSError(number, os.strerror(number), "/nowhere/at/all/file"))
    assert words in error.args[0]
    assert "/nowhere/at/all/file" in error.args[0]


def test_a_home_that_cannot_be_written_may_be_elsewhere(workplace):
    error = as_disk_error(OSError(errno.EROFS, "read-only", str(workplace / "home" / "host.lock")))
    assert "export POTLUCK_HOME=" in error.fix


@pytest.mark.parametrize("error", [OSError(errno.ECONNREFUSED, "refused"), PermissionError(errno.EACCES, "a socket")])
def test_what_is_no_disks_fault_is_left_alone(error):
    assert as_disk_error(error) is None


def test_a_full_disk_is_seen_behind_other_errors():
    behind = RuntimeError("torch's own")
    behind.__cause__ = OSError(errno.ENOSPC, "full")
    assert is_full(behind)
    assert not is_full(OSError(errno.EIO, "broken"))
    assert not is_full(None)


def test_a_folder_on_a_full_disk_is_told_of_with_its_machine(tmp_path, monkeypatch):
    assert full_disk_line(tmp_path / "not there", "rosa") is None
    really = os.statvfs(tmp_path)
    assert (full_disk_line(tmp_path, "rosa") is None) == (really.f_bavail * really.f_frsize >= 1 << 20)
    nothing = os.statvfs_result((4096, 4096, 1000, 1000, 5, 100, 100, 100, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: nothing)
    line = full_disk_line(tmp_path, "rosa")
    assert line == f"the disk of rosa that holds {tmp_path} is full; to free space, on rosa: df -h {tmp_path}"
