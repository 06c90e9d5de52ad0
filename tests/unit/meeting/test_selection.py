"""What travels is what git would take, without what belongs to one machine."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.core.errors import BundleError
from potluck.meeting.transfer import selection
from potluck.meeting.transfer.selection import select_files

ENTRY = Path("train.py")
NAMES = ["a", "b", "data", "x.bin", "y.txt"]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
PATTERNS = st.sampled_from(
    [
        "a", "/a", "a/", "*.bin", "!x.bin", "data/", "/data/", "!/data/", "data/*", "!data/a", "**/b", "a/**", "a/*/b",
        "*", "!*/", "# comment", "", "b/x.bin", "[xy].*", "?.txt", "\\!a", "a ", "!data/", "*.txt", "/*", "!/a",
    ]
)  # fmt: skip


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def selected(folder, entry=ENTRY):
    return set(select_files(folder, entry).files)


def git(repository, *arguments):
    environment = {"PATH": os.environ["PATH"], "HOME": str(repository), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-C", repository, *arguments], env=environment, check=False, capture_output=True, text=True
    )
    assert not done.stderr
    return done.stdout


def git_takes(repository, below):
    """The files that git itself would add."""
    listed = git(repository, "ls-files", "-z", "--others", "--exclude-standard", "--", below).split("\0")
    return {str(Path(name).relative_to(below)) for name in listed if name}


@settings(max_examples=40)
@given(
    files=st.sets(PATHS, max_size=12),
    rules=st.dictionaries(st.sampled_from(["", "p/", "p/a/", "p/data/"]), st.lists(PATTERNS, max_size=4), max_size=4),
)
def test_gitignore_files_at_every_level_mean_what_git_says(tmp_path_factory, files, rules):
    repository = tmp_path_factory.mktemp("repository")
    git(repository, "init", "--quiet")
    touch(repository, "p/train.py")
    for name in sorted(files):
        with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):  # a file cannot be a folder as well
            touch(repository, f"p/{name}")
    for folder, lines in rules.items():
        if (repository / folder).is_dir():
            (repository / folder / ".gitignore").write_text("\n".join(lines))
    if git(repository, "check-ignore", "p"):
        (repository / ".gitignore").unlink()  # the folder was named all the same
    expected = git_takes(repository, "p")
    assert selected(repository / "p") == expected | {"train.py"}


def test_what_belongs_to_one_machine_stays(tmp_path):
    touch(
        tmp_path, "train.py", ".git/config", "lib/__pycache__/a.pyc", "lib/old.pyc", "experiments/first/run.yaml",
        ".venv/x", "my-env/pyvenv.cfg", "my-env/lib/python.py", "conda/conda-meta/x.json", "outputs/one/run.yaml",
        "outputs/one/events/rosa-0.jsonl", "outputs/notes.txt", "lib/experiments/code.py", "sub/.git", "run.yaml",
    )  # fmt: skip
    assert selected(tmp_path) == {"train.py", "outputs/notes.txt", "lib/experiments/code.py", "run.yaml"}


def test_the_script_travels_even_if_ignored(tmp_path):
    touch(tmp_path, "scratch/train.py", "scratch/other.py", "lib.py")
    (tmp_path / ".gitignore").write_text("scratch/\n")
    assert selected(tmp_path, Path("scratch/train.py")) == {".gitignore", "lib.py", "scratch/train.py"}


def test_links_inside_travel_as_files_and_others_are_named(tmp_path):
    project = tmp_path / "project"
    touch(project, "train.py", "lib/a.py", ".git/config")
    touch(tmp_path, "outside.py")
    for name, target in {
        "inside.py": "lib/a.py", "out.py": "../outside.py", "folder": "lib", "nowhere": "gone", "loop": "loop",
        "private": ".git/config",
    }.items():  # fmt: skip
        (project / name).symlink_to(target)
    os.mkfifo(project / "pipe")
    found = select_files(project, ENTRY)
    assert set(found.files) == {"train.py", "lib/a.py", "inside.py"}
    assert set(found.left_out) == {"out.py", "folder", "nowhere", "loop", "pipe", "private"}


def test_a_script_elsewhere_or_nowhere_is_refused(tmp_path):
    project = tmp_path / "project"
    touch(project, "train.py")
    touch(tmp_path, "other.py")
    with pytest.raises(BundleError, match="no script"):
        select_files(project, Path("trian.py"))
    with pytest.raises(BundleError, match="not inside"):
        select_files(project, Path("../other.py"))


def test_a_home_folder_does_not_travel(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "rosa"))
    touch(tmp_path, "home/rosa/train.py", "home/rosa/project/train.py", "home/train.py")
    for folder in ("home/rosa", "home"):
        with pytest.raises(BundleError, match="home folder"):
            select_files(tmp_path / folder, ENTRY)
    assert selected(tmp_path / "home/rosa/project") == {"train.py"}


def test_too_many_files_are_refused_early(tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "MAX_FILES", 10)
    touch(tmp_path, "train.py", *[f"data/{number}" for number in range(10)])
    with pytest.raises(BundleError, match="more than 10 files"):
        select_files(tmp_path, ENTRY)
