"""Machines that have joined are examined from any of them; a blocked direction is named, and its printed rule works."""

import json
import time

import pytest

from lab.cluster import FirewallRule
from tests.lab.gathering import MACHINES, Gathering

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(120), pytest.mark.slow]
MOST_S = 10.0


def examine(gathering, machine, *checks):
    """Findings, everything that was seen, and the seconds that it took."""
    start = time.monotonic()
    only = [word for check in checks for word in ("--check", check)]
    _, output = gathering.run(machine, "doctor", "--cluster", "--json", *only)
    seconds = time.monotonic() - start
    told = json.loads(output[output.index("{") :])
    return told["findings"], told["seen"], seconds


def test_a_blocked_direction_between_joined_machines_is_named_and_the_printed_rule_makes_all_well(tmp_path):
    with Gathering(tmp_path) as gathering:
        gathering.host().expect("rosa is here", 30)
        for name in ("lily", "fern"):
            gathering.join(name)

        # Between two that are not the host, asked for by one of them.
        fern = gathering.lab["fern"]
        fern.set_firewall([FirewallRule(action="drop", protocol="tcp", ports="1024-65535", peer="lily")])
        findings, _, seconds = examine(gathering, "lily", "ephemeral-ports")
        print(f"one blocked direction, without torch: {seconds:.1f} s")
        (blocked,) = (one for one in findings if one["status"] == "fail")
        assert blocked["machine"] == "fern"
        assert "drops connections from lily to high ports" in blocked["what"]
        (fix,) = blocked["fixes"]
        assert fix["machine"] == "fern"
        assert "10.77.0.1" not in str(fix["commands"])  # rosa needs no rule
        assert fern.run(["bash", "-ec", "\n".join(fix["commands"])]).returncode == 0

        findings, seen, seconds = examine(gathering, "rosa")
        print(f"three healthy machines, with the all-reduce: {seconds:.1f} s")
        assert {one["status"] for one in findings} == {"ok"}, [one for one in findings if one["status"] != "ok"]
        assert seconds < MOST_S
        assert {(one["source"], one["target"]) for one in seen["links"]} == {
            (source, target) for source in MACHINES for target in MACHINES if source != target
        }
        assert all(set(link["ports"].values()) == {"open"} for link in seen["links"])
        assert [one["machine"] for one in seen["reductions"]] == list(MACHINES)
        assert all(one["is_sum_right"] and one["names"] == list(MACHINES) for one in seen["reductions"])
