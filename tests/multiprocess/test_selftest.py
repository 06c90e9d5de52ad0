"""`potluck selftest` on this machine's CPU; and that it finds a build whose sums or weights are wrong."""

import json
import os
import subprocess
import sys

import pytest

from potluck.core.version import __version__

# A module that Python imports by itself, in the self-test's worker processes only.
IN_WORKERS = """
import os, sys
if "potluck.probes.selftest.worker" in sys.orig_argv:
"""
MEAN_OVER_WORKERS = f"""{IN_WORKERS}
    from potluck.engine.steps.step import Step
    add = Step.add
    def weigh_all_alike(self, loss, count):
        add(self, loss, count)
        return 1 / int(os.environ.get("POTLUCK_WORKERS", "1"))
    Step.add = weigh_all_alike
"""
ONE_SUM_IS_OFF = f"""{IN_WORKERS}
    from potluck.engine.group.gradient_wire import GradientWire
    note_end = GradientWire._note_end
    def scaled(self, tensor, done):
        is_gradient = tensor.dtype.itemsize == 4 and os.environ.get("POTLUCK_WORKER") == "1"
        return note_end(self, tensor.mul_(1.001) if is_gradient else tensor, done)
    GradientWire._note_end = scaled
"""


def selftest(folder, *checks, broken=None):
    """Run the command in this folder; its exit code, what it printed, and the file that it wrote."""
    variables = {**os.environ, "POTLUCK_NAME": "rosa", "OMP_NUM_THREADS": "1"}
    if broken is not None:
        (folder / "patch").mkdir()
        (folder / "patch" / "sitecustomize.py").write_text(broken)
        variables["PYTHONPATH"] = str(folder / "patch")
    options = [word for check in checks for word in ("--check", check)]
    done = subprocess.run(
        [sys.executable, "-m", "potluck", "selftest", "--quick", *options],
        env=variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    written = folder / "potluck-selftest.json"
    assert written.exists(), done.stdout + done.stderr
    return done.returncode, done.stdout, json.loads(written.read_text())


@pytest.mark.timeout(450)
def test_this_build_is_fine(workplace):
    code, printed, written = selftest(workplace, "parity", "uneven", "memory", "healing", "all-reduce")
    assert code == 0, printed
    assert "all 5 checks are fine on rosa, in " in printed.splitlines()[-1]
    assert "potluck-selftest.json" in printed.splitlines()[-1]
    rows = {row["check"]: row for row in written["rows"]}
    assert all(row["result"] == "ok" for row in rows.values())
    assert rows["uneven"]["number"].endswith("shares 12 + 4")
    assert rows["memory"]["number"].endswith("16 samples did not fit, 2 at once do")
    assert rows["all-reduce"]["figures"]["bytes_per_s"] > 0
    assert rows["healing"]["figures"]["healed_s"] > 0
    assert written["machines"][0]["versions"]["potluck"] == __version__
    assert written["is_well"]
    assert sorted(path.name for path in workplace.iterdir()) == ["potluck-selftest.json"]


@pytest.mark.timeout(450)
def test_gradients_weighted_by_workers_instead_of_samples_fail_with_uneven_shares(workplace):
    code, printed, written = selftest(workplace, "parity", "uneven", broken=MEAN_OVER_WORKERS)
    assert code == 1
    assert [row["result"] for row in written["rows"]] == ["ok", "failed"]
    assert printed.splitlines()[-1].startswith("1 of 2 checks failed on rosa: uneven, in ")
    assert "uneven on rosa, 2 workers on cpu, gloo, fp32" in printed
    assert "failed: parameters are away from those of one process on cpu by " in printed
    assert "fix: type it again: potluck selftest --check uneven" in printed


@pytest.mark.timeout(450)
def test_a_worker_that_gets_another_sum_is_named_first(workplace):
    code, printed, _ = selftest(workplace, "parity", broken=ONE_SUM_IS_OFF)
    assert code == 1
    (line,) = (line for line in printed.splitlines() if "failed: " in line)
    far, _, near = line.partition(" (worker 1 on cpu)")  # the farthest first
    assert "e-04" in far
    assert "(worker 0 on cpu); at most 1e-05 is promised" in near  # it exchanges gradients with worker 1
