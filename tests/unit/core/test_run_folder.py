from concurrent.futures import ThreadPoolExecutor

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


@pytest.mark.parametrize(
    ("to_resume", "fix"), [(True, "leave --resume out to start one"), (False, "start one with: potluck train")]
)
def test_without_runs_the_fix_is_to_start_one(tmp_path, to_resume, fix):
    with pytest.raises(RunFolderError, match="no run in") as newest:
        newest_run_folder(tmp_path, to_resume=to_resume)
    with pytest.raises(RunFolderError, match="no run 'first' in") as named:
        find_run_folder(tmp_path, "first", to_resume=to_resume)
    assert newest.value.fix == named.value.fix == fix


def test_threads_may_replace_the_same_file_at_once(tmp_path):
    """One of them must not rename or remove what another is still writing."""
    path, texts = tmp_path / "file", [str(number) * 10_000 for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(10):
            list(threads.map(lambda text: write_text(path, text), texts))
            assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_one_thread_may_replace_a_file_while_it_replaces_it(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as outer:
        write_text(path, "inner")
        outer.write(b"outer")
    assert path.read_text() == "outer"


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
