"""Selects the files of a script's folder for its bundle: those that git would take, without machine-specific ones."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec, RegexPattern

from potluck.core.errors import BundleError, MeetingError
from potluck.core.run_variables import parse_variables
from potluck.core.shell_words import quote
from potluck.meeting.wire import RunTask

MAX_FILES = 10_000
_NEVER = frozenset(
    {
        ".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules", ".tox", ".nox", ".potluck",
        ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints", ".hypothesis", ".DS_Store",
    }
)  # fmt: skip
_NEVER_AT_THE_TOP = frozenset({"experiments"})  # where runs go


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Sorted paths relative to the folder, with '/'."""

    files: tuple[str, ...]
    left_out: tuple[str, ...]
    """Skipped paths that the user may miss: links out of the folder or to a folder, and special files."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """One .gitignore: its patterns are relative to the folder that holds it."""

    folder: Path
    spec: GitIgnoreSpec

    def verdict(self, path: Path, is_folder: bool) -> bool | None:
        """Whether to ignore the path; None if no pattern matches it."""
        name = path.relative_to(self.folder).as_posix() + ("/" if is_folder else "")
        for pattern in reversed(self.spec.patterns):
            if pattern.include is not None and _matches_itself(pattern, name):
                return pattern.include
        return None


def _matches_itself(pattern: RegexPattern, name: str) -> bool:
    """Whether the pattern matches this path itself, and not only a folder above it.

    pathspec's patterns also match everything below a folder that they name (group ps_d). Here that folder was checked
    before, and a nested .gitignore may decide otherwise about its contents.
    """
    assert pattern.regex is not None
    return any(
        match.groupdict().get("ps_d") is None or match.end("ps_d") == len(name)
        for match in pattern.regex.finditer(name)
    )


def select_files(folder: Path, entry: Path, without: tuple[Path, ...] = ()) -> Selection:
    """The files to bundle. The entry, which the user has named, is included even if .gitignore lists it.

    `without`: full paths of folders that are not bundled, or of links to them.
    """
    folder = folder.resolve()
    skipped = (*without, *(one.resolve() for one in without))
    script = check_entry(folder, entry)
    if Path.home().resolve().is_relative_to(folder):
        raise BundleError(
            f"{folder} is a home folder or holds one: all that is in it would be sent to the other machines",
            fix=f"put the script into a folder of its own: mkdir ~/training && mv {quote(folder / script)} ~/training/",
        )
    files, left_out = {script}, []
    for path, is_plain in _walk(folder, _rules_above(folder), skipped):
        name = path.relative_to(folder).as_posix()
        if is_plain:
            files.add(name)
        else:
            left_out.append(name)
        if len(files) > MAX_FILES:
            raise BundleError(
                f"{folder} has more than {MAX_FILES} files that .gitignore does not list",
                fix=f"list data and outputs in {folder / '.gitignore'}, or put the code into a folder of its own",
            )
    return Selection(files=tuple(sorted(files)), left_out=tuple(sorted(left_out)))


def check_entry(folder: Path, entry: Path) -> str:
    """The script's path inside the folder; raises if there is no such file in it."""
    script = Path(os.path.normpath(folder.resolve() / entry))
    script = script.parent.resolve() / script.name
    if not script.is_file():
        raise BundleError(f"there is no script {entry} in {folder}", fix="check the name and the folder")
    if not script.is_relative_to(folder.resolve()):
        raise BundleError(f"{script} is not inside {folder}", fix=f"change to the script's folder: cd {script.parent}")
    return script.relative_to(folder.resolve()).as_posix()


def check_script(task: RunTask) -> RunTask:
    """The task, if its script is a path inside its bundle and workers may have its variables; raises otherwise."""
    entry = PurePosixPath(task.entry)
    if task.bundle is None:
        raise MeetingError(
            "the request names a script, and no bundle that holds it",
            fix="start the script with: potluck run script.py",
        )
    if not task.entry.isprintable() or entry.is_absolute() or ".." in entry.parts or not entry.name:
        raise MeetingError(
            f"{task.entry!r} is not a file of the script's own folder",
            fix="start the script with: potluck run script.py, from its folder",
        )
    parse_variables(task.env)
    return task


def _walk(folder: Path, rules: list[_Rules], skipped: tuple[Path, ...] = ()) -> Iterator[tuple[Path, bool]]:
    """Paths below the folder that are neither ignored nor machine-specific, and whether each is a plain file."""
    to_visit = [(folder, rules)]
    while to_visit:
        here, rules = to_visit.pop()
        rules = [*rules, *_rules_of(here)]
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            raise BundleError(
                f"{here} cannot be read: {error.strerror}", fix=f"list it in {folder / '.gitignore'}"
            ) from None
        for entry in entries:
            path = Path(entry.path)
            is_folder = entry.is_dir(follow_symlinks=False)
            if path in skipped or _stays(path, folder, is_folder) or _is_ignored(path, is_folder, rules):
                continue
            if is_folder:
                to_visit.append((path, rules))
            else:
                yield path, _is_plain(path, folder)


def _stays(path: Path, top: Path, is_folder: bool) -> bool:
    """Whether the path belongs to this machine alone: version control, environments, caches, runs, credentials."""
    if is_folder and (path / "machine-id").is_file() and (path / "agent.lock").is_file():
        return True  # POTLUCK_HOME, with this machine's credentials
    if path.name in _NEVER or path.suffix == ".pyc":
        return True
    if not is_folder:
        return False
    is_environment = (path / "pyvenv.cfg").is_file() or (path / "conda-meta").is_dir()
    is_run = (path / "run.yaml").is_file() and (path / "events").is_dir()
    return is_environment or is_run or (path.parent == top and path.name in _NEVER_AT_THE_TOP)


def _is_ignored(path: Path, is_folder: bool, rules: list[_Rules]) -> bool:
    """Whether git would ignore the path: the deepest .gitignore with a pattern for it decides."""
    verdicts = (each.verdict(path, is_folder) for each in reversed(rules))
    return bool(next((verdict for verdict in verdicts if verdict is not None), False))


def _is_plain(path: Path, top: Path) -> bool:
    """Whether the path is a file, or a link to a file inside the folder that may be bundled itself."""
    if not path.is_symlink():
        return stat.S_ISREG(path.lstat().st_mode)
    try:
        target = path.resolve(strict=True)
        inside = target.is_relative_to(top) and not any(
            _stays(parent, top, parent.is_dir())
            for parent in (target, *target.parents)
            if parent != top and parent.is_relative_to(top)
        )
        return inside and target.is_file()
    except (OSError, RuntimeError):  # a link to nowhere, or to itself
        return False


def _rules_of(folder: Path) -> list[_Rules]:
    file = folder / ".gitignore"
    try:
        lines = file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    try:
        return [_Rules(folder, GitIgnoreSpec.from_lines(lines))]
    except ValueError as error:
        raise BundleError(f"{file} has a line that is not a pattern: {error}", fix=f"correct it in {file}") from None


def _rules_above(folder: Path) -> list[_Rules]:
    """The .gitignore files from the top of the repository down to the folder's parent, if it is in a repository."""
    path = [folder, *folder.parents]
    top = next((index for index, parent in enumerate(path) if (parent / ".git").exists()), 0)
    rules: list[_Rules] = []
    for parent, child in reversed(list(zip(path[1 : top + 1], path[:top], strict=True))):
        rules += _rules_of(parent)
        if _is_ignored(child, True, rules):
            return []  # the user has named an ignored folder: the repository's rules do not apply inside it
    return rules
