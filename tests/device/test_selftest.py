"""`potluck selftest` on a machine with two stand-in accelerators."""

import json
import subprocess
import sys

import pytest


@pytest.mark.timeout(600)
def test_two_accelerators_and_the_cpu_pass(on_device, workplace):
    """Two accelerators together, both with the CPU, and one whose memory is full."""
    checks = [word for check in ("parity", "together", "memory") for word in ("--check", check)]
    done = subprocess.run(
        [sys.executable, "-m", "potluck", "selftest", "--quick", *checks],
        env={**on_device, "POTLUCK_HOME": str(workplace / "home"), "STANDIN_MEMORY_BYTES": str(2 * 10**9)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((workplace / "potluck-selftest.json").read_text())
    assert written["machines"][0]["devices"] == ["cpu", "standin:0", "standin:1"]
    rows = {(row["check"], row["where"]): row for row in written["rows"]}
    assert {row["result"] for row in rows.values()} == {"ok"}
    assert ("parity", "2 standin, gloo, fp32") in rows
    assert ("together", "2 standin + cpu, gloo, fp32") in rows
    assert rows["memory", "standin:1, fp32"]["number"].endswith("16 samples did not fit, 2 at once do")
