"""A disk that is really full for a while, under a host's home and its runs: the run goes on with all machines."""

import os
import subprocess
import time

import pytest

from tests.multiprocess.test_host_restart import TRAIN, Cluster, steps_of, wait_for_step

pytestmark = pytest.mark.timeout(240)
FULL_S = 6.0
SENTENCE = "cannot be written: the disk that holds it is full"


@pytest.fixture
def small_disk(workplace):
    """A tmpfs of a few megabytes, and on it the host's home and the runs."""
    small = workplace / "small"
    small.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(small)]
    if os.getuid() != 0 or subprocess.run(mounting, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        for name in ("home", "experiments"):
            (small / name).mkdir()
            (workplace / name).symlink_to(small / name)
        yield small
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


def fill(disk):
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"0" * 4096)
        except OSError:
            return ballast


def test_the_run_goes_on_with_all_machines_and_the_disk_is_named_once(small_disk, workplace):
    cluster = Cluster(host_trains=True)
    try:
        cluster.join("lily")
        training = cluster.start(*TRAIN, "--checkpoint-every", "5")
        for worker in ("rosa-0", "lily-1"):
            wait_for_step(worker, 8)
        ballast = fill(small_disk)
        before = steps_of("lily-1", workplace / "lily" / "runs")[-1]
        time.sleep(FULL_S)
        training.wait_for("the disk of rosa that holds")
        during = steps_of("lily-1", workplace / "lily" / "runs")[-1]
        assert during > before + 1  # nobody waited for space
        ballast.unlink()
        for worker in ("rosa-0", "lily-1"):
            wait_for_step(worker, during + 5)
            steps = steps_of(worker)
            assert steps == list(range(1, len(steps) + 1)), "a step is missing or was done twice"
        assert cluster.start("stop", "long").finish(60)[0] == 0
        code, output = training.finish(60)
        assert code == 130, output
        assert "crashed" not in output
        told = cluster.host.output()
        assert "Traceback" not in told
        sentences = [line for line in told.splitlines() if SENTENCE in line]
        assert len(sentences) == len(set(sentences)) >= 1
    finally:
        cluster.close()
