"""Whether there is a script, made for Potluck or for torchrun, read from its files; nothing of the script is run."""

import ast
from pathlib import Path

from potluck.cli.saying import warn
from potluck.core.errors import MeetingError
from potluck.core.shell_words import quote
from potluck.meeting.transfer.packages import read_script

_CALLS = ("init_process_group",)
_PACKAGES = ("accelerate", "lightning", "pytorch_lightning", "deepspeed")


def check_script(script: Path) -> None:
    """Refuse a path at which there is no file."""
    if script.is_dir():
        example = quote(script / "train.py")
        raise MeetingError(f"{script} is a folder, not a script", fix=f"name a script in it: potluck run {example}")
    if not script.is_file():
        raise MeetingError(f"there is no script {script}", fix="check the path after potluck run")


def check_kind(folder: Path, script: Path, *, is_plain: bool, resume: bool, log_to: str | None) -> None:
    """Refuse what --plain cannot do; for a script that is made for torchrun, say that --plain exists."""
    files, _ = read_script(folder, script.absolute())
    trees = [tree for file in sorted(files) if (tree := _parse(file)) is not None]
    uses_potluck = any("potluck" in _imported(tree) for tree in trees)
    if not is_plain:
        found = "" if uses_potluck else next((word for tree in trees if (word := made_for(tree))), "")
        if found:
            warn(
                f"{script.name} uses {found} and not Potluck: to give its workers RANK, WORLD_SIZE, MASTER_ADDR and so "
                f"on, as torchrun does: potluck run --plain {quote(script)}"
            )
        return
    if uses_potluck:
        raise MeetingError(f"{script.name} uses Potluck, so --plain is not for it", fix="leave --plain out")
    if resume:
        raise MeetingError(
            "--plain knows nothing of the script's checkpoints, so --resume has no meaning",
            fix=f"put the checkpoint into {folder} (at most 100 MB, and not in .gitignore), or copy it to the same "
            f"path on every machine, and start {script.name} with its own argument for a checkpoint",
        )
    if log_to is not None:
        raise MeetingError(
            f"--log-to {log_to} needs the steps of the run, and --plain does not see those of the script",
            fix="leave --log-to out; what the script logs by itself is not changed",
        )


def made_for(tree: ast.AST) -> str:
    """What the file uses of the things that need torchrun's variables; empty if it uses none."""
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name in _CALLS:
            return name
    return next((package for package in _PACKAGES if package in _imported(tree)), "")


def _imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


def _parse(file: Path) -> ast.AST | None:
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # running the script gives a better error
        return None
