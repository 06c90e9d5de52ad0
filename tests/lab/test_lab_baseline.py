"""The baseline of stock DDP runs in the lab and says what later work is compared with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.needs_lab
@pytest.mark.real_world
@pytest.mark.timeout(120)
def test_an_equal_split_wastes_the_fast_machine() -> None:
    options = ["--rounds", "1", "--steps", "3", "--solo-seconds", "1.5", "--batch", "64"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ddp_baseline", "--cluster", "pair", "--json", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    oak, elm = figures["solo_samples_per_s"]["oak"], figures["solo_samples_per_s"]["elm"]
    assert figures["sum_of_solo_samples_per_s"] == pytest.approx(oak + elm, abs=0.2)
    assert figures["efficiency_ratio"] == pytest.approx(figures["samples_per_s"] / (oak + elm), abs=0.002)
    # Equal shares end when the slow machine does: at most 2 * 0.3 / 1.3 = 0.46 of the sum, and some for the exchange.
    assert 0.25 < figures["efficiency_ratio"] < 0.6


def test_the_baseline_is_free_of_our_own_engine() -> None:
    code = "import benchmarks.ddp_baseline, sys; print([name for name in sys.modules if name.startswith('potluck')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
