"""Data without a shared disk: a folder reaches the other machines, by `benchmarks.shared_data`."""

import shutil
import subprocess

import pytest

from benchmarks.shared_data import SCRIPT, make_samples
from benchmarks.support.gathering import Gathering
from benchmarks.support.shared_data_script import SAMPLE_BYTES
from tests.benchmark_runs import run_shortest

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(400)]
PAIR = "machines:\n" + "".join(
    f"  - {{name: {name}, cores: 0.9, memory: 3G, link: 1gbit, resolves: false}}\n" for name in ("rosa", "lily")
)


@pytest.mark.real_world
@pytest.mark.parametrize("kind", ["files", "one"])
def test_a_folder_arrives_while_training_goes_on_through_a_kill_and_a_damaged_file(kind):
    arguments = ["--gigabytes", "0.15", "--kind", kind, "--rate", "50mbit", "--json"]
    found = run_shortest("shared_data", arguments, timeout_s=350)
    assert found["difference"] < 1e-6
    assert found["received_ratio"] < 1.6  # with the gradients of all steps
    assert found["second_bytes"] < found["gigabytes"] * 0.5e9
    assert found["third_bytes"] < found["gigabytes"] * 0.5e9


@pytest.fixture
def small_disk(tmp_path):
    """Where lily's data goes is a disk of 16 MB."""
    data = tmp_path / "lily" / "home" / "data"
    data.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", data], check=True)
    yield
    subprocess.run(["umount", "--lazy", data], check=True)


@pytest.fixture
def pair(tmp_path):
    with Gathering(tmp_path, PAIR) as gathering:
        gathering.host().expect("rosa is here", 60)
        gathering.join("lily")
        shutil.copy(SCRIPT, gathering.place("rosa") / "train.py")
        yield gathering


def test_a_machine_without_space_says_so_at_once(small_disk, pair, tmp_path):
    samples = make_samples(tmp_path / "samples", 300 * SAMPLE_BYTES, "files")
    code, output = pair.run("rosa", "run", "--data", samples, "train.py", "--save", tmp_path, timeout_s=90)
    assert code != 0
    assert "lily: samples needs 0.03 GB here" in output
    assert "fix: free space" in output


def test_a_machine_that_has_the_data_need_not_train(pair, tmp_path):
    samples = make_samples(tmp_path / "samples", 64 * 20 * SAMPLE_BYTES, "one")
    arguments = ["--not-here", "--data", samples, "train.py", "--save", tmp_path / "saved"]
    code, output = pair.run("rosa", "run", *arguments, timeout_s=120)
    assert code == 0, output
    assert [file.name for file in (tmp_path / "saved").iterdir()] == ["lily.pt"]
