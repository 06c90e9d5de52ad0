import pytest

from potluck.core.atomic import replacing, write_text
from potluck.core.errors import RunFolderError
from potluck.core.run_folder import create_run_folder, find_run_folder, free_run_name, newest_run_folder


def test_a_name_is_claimed_once(tmp_path):
    create_run_folder(tmp_path, "first")
    with pytest.raises(RunFolderError) as caught:
        create_run_folder(tmp_path, "first")
    assert "--resume" in caught.value.fix


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", ".hidden", "a b", "x" * 101, "é"])
def test_a_name_cannot_leave_its_folder(tmp_path, name):
    with pytest.raises(RunFolderError, match="cannot name a run"):
        create_run_folder(tmp_path, name)


def test_free_names_count_up(tmp_path):
    assert free_run_name(tmp_path, "a") == "a-1"
    create_run_folder(tmp_path, "a-1")
    assert free_run_name(tmp_path, "a") == "a-2"


def test_a_run_that_is_not_there_is_suggested_from_those_that_are(tmp_path):
    write_text(create_run_folder(tmp_path, "first").settings_file, "")
    with pytest.raises(RunFolderError) as caught:
        find_run_folder(tmp_path, "frist")
    assert "did you mean 'first'?" in caught.value.fix


def test_without_runs_there_is_nothing_to_resume(tmp_path):
    with pytest.raises(RunFolderError, match="no run"):
        newest_run_folder(tmp_path)


def test_a_write_that_fails_leaves_the_old_content_and_no_litter(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")

    def fail_half_way():
        with replacing(path) as file:
            file.write(b"half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
