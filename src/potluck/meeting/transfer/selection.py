"""Which files of a script's folder travel: what git would take, without what belongs to one machine."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec, RegexPattern

from potluck.core.errors import BundleError, MeetingError
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
    """Paths relative to the folder, with '/', in order."""

    files: tuple[str, ...]
    left_out: tuple[str, ...]
    """Links that lead out of the folder or to a folder, and what is neither file nor folder: worth a word."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """One .gitignore: its patterns are relative to the folder that holds it."""

    folder: Path
    spec: GitIgnoreSpec

    def verdict(self, path: Path, is_folder: bool) -> bool | None:
        """Whether to ignore it, or None where these patterns say nothing."""
        name = path.relative_to(self.folder).as_posix() + ("/" if is_folder else "")
        for pattern in reversed(self.spec.patterns):
            if pattern.include is not None and _matches_itself(pattern, name):
                return pattern.include
        return None


def _matches_itself(pattern: RegexPattern, name: str) -> bool:
    """Whether the pattern means this path. pathspec's also match what is below a folder that they mean (group ps_d);

    here that folder was asked about before, and between nested files its contents may have another verdict.
    """
    assert pattern.regex is not None
    return any(
        match.groupdict().get("ps_d") is None or match.end("ps_d") == len(name)
        for match in pattern.regex.finditer(name)
    )


def select_files(folder: Path, entry: Path) -> Selection:
    """The files to bundle. The entry, which somebody has named, travels even where .gitignore lists it."""
    folder = folder.resolve()
    script = check_entry(folder, entry)
    if Path.home().resolve().is_relative_to(folder):
        raise BundleError(
            f"{folder} is a home folder or holds one: all that is in it would be sent to the other machines",
            fix=f"put the script into a folder of its own: mkdir ~/training && mv {quote(folder / script)} ~/training/",
        )
    files, left_out = {script}, []
    for path, is_plain in _walk(folder, _rules_above(folder)):
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
    """The script's path inside the folder."""
    script = Path(os.path.normpath(folder.resolve() / entry))
    script = script.parent.resolve() / script.name
    if not script.is_file():
        raise BundleError(f"there is no script {entry} in {folder}", fix="check the name and the folder")
    if not script.is_relative_to(folder.resolve()):
        raise BundleError(f"{script} is not inside {folder}", fix=f"change to the script's folder: cd {script.parent}")
    return script.relative_to(folder.resolve()).as_posix()


def check_script(task: RunTask) -> RunTask:
    """The task, if what it runs is a file of the bundle that it brings: no machine runs any other file."""
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
    return task


def _walk(folder: Path, rules: list[_Rules]) -> Iterator[tuple[Path, bool]]:
    """What travels below the folder, and whether it is a plain file."""
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
            if _stays(path, folder, is_folder) or _is_ignored(path, is_folder, rules):
                continue
            if is_folder:
                to_visit.append((path, rules))
            else:
                yield path, _is_plain(path, folder)


def _stays(path: Path, top: Path, is_folder: bool) -> bool:
    """Whether it belongs to this machine alone: version control, environments, caches, runs."""
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
    """As git decides: the deepest .gitignore that says something has the last word."""
    verdicts = (each.verdict(path, is_folder) for each in reversed(rules))
    return bool(next((verdict for verdict in verdicts if verdict is not None), False))


def _is_plain(path: Path, top: Path) -> bool:
    """A file, or a link to one inside the folder (and then not to one that stays here)."""
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
    """The .gitignore files between the top of the repository and the folder, if it is inside one."""
    path = [folder, *folder.parents]
    top = next((index for index, parent in enumerate(path) if (parent / ".git").exists()), 0)
    rules: list[_Rules] = []
    for parent, child in reversed(list(zip(path[1 : top + 1], path[:top], strict=True))):
        rules += _rules_of(parent)
        if _is_ignored(child, True, rules):
            return []  # somebody has named this folder all the same: what the repository says does not reach into it
    return rules
