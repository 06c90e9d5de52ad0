"""Every row of docs/when-things-die.md names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "when-things-die.md").read_text()
NAMED = re.findall(r"\| `(test_\w+)` \|$", PAGE, re.MULTILINE)


def test_every_row_is_a_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| what dies")]
    rows = rows[: next((number for number, line in enumerate(rows) if "test_" not in line), len(rows))]
    assert len(NAMED) == len(rows) > 10
    written = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name in NAMED if f"def {name}(" not in written]
