"""Data without a shared disk: a folder reaches the other machines, by `benchmarks.shared_data`."""

import os
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


def test_train_shares_its_data_dir(pair, tmp_path):
    text = tmp_path / "poems"
    text.mkdir()
    for number in range(4):
        (text / f"{number}.txt").write_text(f"number {number} of all poems is short. " * 2000)
    arguments = ["--model", "gpt2", "--model-size", "tiny", "--dataset", "text", "--data-dir", text, "--epochs", "1"]
    code, output = pair.run(
        "rosa", "train", *arguments, "--max-steps", "6", "--keep", "rosa", "--keep", "lily", timeout_s=150
    )
    assert code == 0, output
    assert "poems: 4 files, 0.00 GB, goes to the other machines" in output
    (seen,) = (pair.place("lily") / "home" / "data").glob("*/seen/poems")
    assert (seen / "3.txt").read_bytes() == (text / "3.txt").read_bytes()


PLAIN = """
import os, sys
from pathlib import Path
total = sum(len(file.read_bytes()) for file in sorted(Path("things").iterdir()))
Path(sys.argv[1], os.environ["RANK"]).write_text(str(total))
"""


@pytest.mark.parametrize("option", ["--data", "--data-first"])
def test_a_script_that_does_not_use_potluck_finds_the_folder(pair, tmp_path, option):
    things, told = pair.place("rosa") / "things", tmp_path / "told"
    things.mkdir()
    told.mkdir()
    for number in range(30):
        (things / f"{number}").write_bytes(bytes(100_000))
    (pair.place("rosa") / "plain.py").write_text(PLAIN)
    code, output = pair.run("rosa", "run", "--plain", option, things, "plain.py", told, timeout_s=120)
    assert code == 0, output
    assert {one.name: one.read_text() for one in told.iterdir()} == {"0": "3000000", "1": "3000000"}
    (seen,) = (pair.place("lily") / "home" / "data").glob("*/seen/things")
    assert len([one for one in seen.iterdir() if not one.is_symlink()]) == 30


@pytest.mark.real_world
def test_machines_send_each_other_what_they_have(tmp_path):
    names = ("rosa", "lily", "fern", "ivy", "moss", "reed")
    cluster = "machines:\n" + "".join(
        f"  - {{name: {name}, cores: 0.33, memory: 2G, link: 40mbit, resolves: false}}\n" for name in names
    )
    (tmp_path / "rosa" / "things").mkdir(parents=True)
    for number in range(200):
        (tmp_path / "rosa" / "things" / f"{number}").write_bytes(os.urandom(100_000))
    (tmp_path / "told").mkdir()
    with Gathering(tmp_path, cluster) as gathering:
        gathering.host().expect("rosa is here", 90)
        gathering.join_all(*names[1:])
        (gathering.place("rosa") / "plain.py").write_text(PLAIN)
        before = gathering.lab["rosa"].usage().sent_bytes
        arguments = ["--plain", "--data", "things", "plain.py", tmp_path / "told"]
        code, output = gathering.run("rosa", "run", *arguments, timeout_s=240)
        assert code == 0, output
        assert {one.read_text() for one in (tmp_path / "told").iterdir()} == {"20000000"}
        assert gathering.lab["rosa"].usage().sent_bytes - before < 3.5 * 20e6  # five machines got it
