"""The guides prove their steps by checks that exist, and ask nobody to switch a firewall off."""

import re
from pathlib import Path

import pytest

from potluck.doctor.checks.catalogue import CLUSTER_CHECKS, MACHINE_CHECKS

DOCS = Path(__file__).parents[3] / "docs"
GUIDES = ("windows", "cable", "wifi", "containers", "cpu-only", "all-gpu")


@pytest.mark.parametrize("name", [*GUIDES, "doctor"])
def test_every_check_that_is_named_exists(name):
    text = (DOCS / f"{name}.md").read_text()
    named = re.findall(r"--check ([a-z0-9-]+)", text)
    assert named, "a guide without a check proves nothing"
    assert set(named) - {"ID"} <= set(MACHINE_CHECKS)
    for one in re.findall(r"`([a-z]+(?:-[a-z0-9]+)+)`", text):
        assert one in {*MACHINE_CHECKS, *CLUSTER_CHECKS} or one in ("never-default",), one


def test_every_check_named_anywhere_exists():
    pages = [*DOCS.parent.glob("*.md"), *DOCS.glob("*.md"), *(DOCS.parent / "src").rglob("*.py")]
    named = {
        one
        for page in pages
        for one in re.findall(r"doctor(?: --check [a-z0-9-]+)* --check ([a-z0-9-]+)", page.read_text())
    }
    assert len(named) > 20
    assert named <= set(MACHINE_CHECKS)  # they are typed on one machine


@pytest.mark.parametrize("name", GUIDES)
def test_no_firewall_is_switched_off(name):
    text = (DOCS / f"{name}.md").read_text()
    assert not re.search(r"Enabled False|ufw disable|[Dd]isable.*firewall|systemctl stop", text)
    assert len(re.findall(r"^(?:\d\.|##) ", text, re.MULTILINE)) >= 5
