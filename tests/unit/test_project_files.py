"""Files that only a hosting site reads: issue forms and workflows are valid, and workflows hold no known weakness."""

import subprocess
import sys
from pathlib import Path

import pytest

GITHUB = Path(__file__).parents[2] / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(set((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) - {GITHUB / "ISSUE_TEMPLATE" / "config.yml"})


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("dependabot", [GITHUB / "dependabot.yml"]),
        ("github-issue-forms", FORMS),
        ("github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
    ],
)
def test_each_file_has_the_form_that_the_site_reads(schema, files):
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stdout + result.stderr


def test_workflows_ask_for_no_more_rights_than_they_need():
    command = [Path(sys.executable).with_name("zizmor"), "--offline", "--no-progress", "--persona", "pedantic", GITHUB]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_every_issue_form_asks_for_the_doctor(form):
    assert "potluck doctor --json" in form.read_text()
