"""A healthy cluster gets a clean bill, quickly."""

import json
import time

import pytest

from lab import Lab
from lab.cluster_file import parse_cluster
from tests.lab.clinic import POTLUCK, ROOT

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(120)]
NAMES = ("rosa", "lily", "fern")
CLUSTER = "machines:\n" + "".join(f"  - {{name: {name}, cores: 0.66, memory: 2G, link: 1gbit}}\n" for name in NAMES)


def test_three_healthy_machines_are_examined_in_ten_seconds_without_a_warning() -> None:
    with Lab(parse_cluster(CLUSTER, source="here", name="healthy"), name="healthy") as lab:
        listeners = [lab[name].start([POTLUCK, "doctor", "--listen"], cwd=ROOT) for name in NAMES[1:]]
        places = [one.expect("--reach", timeout_s=30).partition("--reach ")[2] for one in listeners]
        command = [POTLUCK, "doctor", "--json", *(word for place in places for word in ("--reach", place))]
        start = time.monotonic()
        done = lab[NAMES[0]].run(command, cwd=ROOT)
        seconds = time.monotonic() - start
    told = json.loads(done.output[done.output.index("{") :])
    assert [one for one in told["findings"] if one["status"] != "ok"] == []
    assert seconds < 10
    links = told["seen"]["links"]
    assert {(one["source"], one["target"]) for one in links} == {(a, b) for a in NAMES for b in NAMES if a != b}
    for link in links:
        assert link["outcome"] == "open"
        assert 50e6 < link["bytes_per_s"] < 126e6  # a gigabit
        assert abs(link["clock_offset_s"]) < 0.1  # all machines of a lab share a clock
