"""The lighthouse that a user starts by hand has the settings of the one that Potluck starts."""

import re
from pathlib import Path

from potluck.engine.group import lighthouse


def test_the_page_gives_the_lighthouse_the_flags_that_potluck_gives_it():
    page = (Path(__file__).parents[3] / "docs" / "several-workers.md").read_text()
    (command,) = re.findall(r"^torchft_lighthouse (.*)$", page, re.M)
    flags = dict(re.findall(r"--(\w+) (\S+)", command))
    assert flags["min_replicas"] == "1"
    assert int(flags["heartbeat_timeout_ms"]) == lighthouse._HEARTBEAT_TIMEOUT_MS
    assert int(flags["join_timeout_ms"]) == lighthouse._JOIN_TIMEOUT_MS
