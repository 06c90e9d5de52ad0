"""docs/architecture.md names only what exists, and answers each question briefly."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "potluck"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PACKAGES = {path.name for path in SOURCE.iterdir() if path.is_dir()}
QUESTIONS = dict(re.findall(r"^## ([^\n]*\?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))


def quoted():
    """What stands in backticks and begins with a package's name."""
    words = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.S))
    return sorted({word for word in words if re.split(r"[./]", word)[0] in PACKAGES and word not in PACKAGES})


def find(dotted):
    """The file or folder that a dotted name begins with, and the names inside it."""
    place, parts = SOURCE, dotted.split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if parts and (place / f"{parts[0]}.py").is_file():
        return place / f"{parts[0]}.py", parts[1:]
    return place, parts


def exists_in(tree, parts):
    for part in parts:
        found = [
            node
            for node in tree.body
            if getattr(node, "name", None) == part
            or (isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == part)
            or (isinstance(node, ast.Assign) and part in map(ast.unparse, node.targets))
        ]
        if not found:
            return False
        tree = found[0]
    return True


@pytest.mark.parametrize("word", quoted())
def test_every_name_on_the_page_exists(word):
    if "/" in word:
        assert (SOURCE / word).exists(), word
        return
    file, parts = find(word.removesuffix("()"))
    if file.is_dir():
        assert not parts, f"{file.relative_to(ROOT)} has no {parts[0]}"
    else:
        assert exists_in(ast.parse(file.read_text()), parts), f"{file.relative_to(ROOT)} has no {'.'.join(parts)}"


def test_the_questions_are_answered_in_at_most_fifteen_lines_with_names():
    assert len(QUESTIONS) == 5
    for question, answer in QUESTIONS.items():
        lines = [line for line in answer.splitlines() if line.strip()]
        assert 0 < len(lines) <= 15, question
        assert len(re.findall(r"`[a-z_]+\.[\w.]+`", answer)) >= 5, question


def test_every_package_and_subpackage_of_engine_and_meeting_is_on_the_page():
    folders = [
        f"{top}/{path.name}/" for top in ("engine", "meeting") for path in (SOURCE / top).iterdir() if path.is_dir()
    ]
    missing = [name for name in [*PACKAGES, *folders] if name.strip("_") and "__" not in name and name not in PAGE]
    assert not missing
