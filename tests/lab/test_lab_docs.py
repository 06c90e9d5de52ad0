"""docs/lab.md is true: its example runs, its tables name every verb and every key."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab import load_cluster, parse_cluster
from lab.cli import app
from lab.cluster_file import DiskEntry, FirewallEntry, InterfaceEntry, MachineEntry, UplinkEntry, shipped_clusters

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "lab.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.needs_lab
@pytest.mark.timeout(60)
def test_the_python_example_prints_what_the_page_says() -> None:
    (example,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=REPOSITORY, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.stderr == ""
    assert f"```\n{done.stdout}```" in PAGE


def test_every_verb_is_in_the_table() -> None:
    verbs = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert verbs == set(re.findall(r"^\| `python -m lab (\w+)", PAGE, flags=re.MULTILINE))


def test_every_key_is_in_the_table() -> None:
    assert set(MachineEntry.model_fields) <= set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE))
    entries = (DiskEntry, InterfaceEntry, FirewallEntry, UplinkEntry)
    nested = {key for entry in entries for key in entry.model_fields} - {"name"}
    assert all(f"`{key}" in PAGE for key in nested)


def test_the_yaml_example_and_the_table_of_clusters_are_real() -> None:
    (example,) = blocks("yaml")
    assert len(parse_cluster(example, source="docs/lab.md", name="example").machines) == 2
    for name in shipped_clusters():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
        for machine in load_cluster(name).machines:
            assert f"`{machine.name}` {machine.cores}" in row or "as `laptops`" in row
