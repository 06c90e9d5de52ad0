"""The documentation site: what its build refuses, and that every page of docs/ and every public name is on it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import potluck

ROOT = Path(__file__).parents[2]


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--builder", "dummy", source, target]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@pytest.mark.timeout(320)
def test_broken_links_headings_and_lost_pages_fail_the_build(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for page in [*ROOT.glob("*.md"), ROOT / "LICENSE"]:
        shutil.copy(page, tmp_path)
    with (tmp_path / "docs" / "wifi.md").open("a") as page:
        page.write("\n[a page](no-such-page.md) and [a heading](cable.md#no-such-heading)\n")
    with (tmp_path / "README.md").open("a") as page:
        page.write("\n[from the root](docs/no-such-file.md)\n")
    (tmp_path / "docs" / "lost.md").write_text("# A page that no menu names\n")
    result = build(tmp_path / "docs", tmp_path / "site")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 4, result.stderr
    for part in ("no-such-page", "no-such-heading", "no-such-file", "lost.md"):
        assert part in result.stderr


def test_the_api_page_has_every_public_name():
    page = (ROOT / "docs" / "api.md").read_text()
    named = set(re.findall(r":: potluck\.(\w+)", page))
    assert named == {name for name in potluck.__all__ if name != "__version__"}
