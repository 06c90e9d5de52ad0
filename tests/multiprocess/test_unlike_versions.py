"""Two Pythons and two versions of torch, in real environments: all four train one run, or are refused with a number."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from potluck.engine.checkpoints.checkpoint_file import read_checkpoint, write_checkpoint
from potluck.events.log import read_records
from potluck.events.types import GroupChanged
from tests.multiprocess.command import Command
from tests.multiprocess.environments import OWN_TORCH, find_other_python, make_environments
from tests.multiprocess.test_meeting_door import RealHost, free_port

pytestmark = [pytest.mark.real_world, pytest.mark.timeout(900)]
SCRIPT = Path(__file__).parent / "float64_script.py"
MOST_APART = 1e-10  # as for any split, see test_law.py
NAMES = ("lily", "fern", "ivy")


@pytest.fixture(scope="module")
def environments():
    other = find_other_python()
    if other is None:
        pytest.skip("no Python of another minor version is installed: pyenv install 3.12, or uv python install 3.12")
    begun = time.monotonic()
    made = make_environments(other)
    print(f"environments ready after {time.monotonic() - begun:.0f} s")
    return made


class ForeignCommand:
    """A `potluck` command of another environment."""

    def __init__(self, python, *arguments, home, **variables):
        self.home = Path.cwd() / home
        self._output = Path.cwd() / f"output-of-{home}.txt"
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("POTLUCK_", "PYTHON"))}
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                [str(python), "-m", "potluck", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**plain, "POTLUCK_HOME": str(self.home), "OMP_NUM_THREADS": "1", **variables},
            )

    def output(self):
        return self._output.read_text()

    def wait_for(self, words, timeout_s=120):
        deadline = time.monotonic() + timeout_s
        while words not in self.output():
            assert self._process.poll() is None, f"ended before {words!r}:\n{self.output()}"
            assert time.monotonic() < deadline, f"no {words!r} within {timeout_s} s:\n{self.output()}"
            time.sleep(0.1)

    def workers(self):
        """The processes that train: forks of the fork server."""
        servers = [
            each for each in psutil.Process(self._process.pid).children() if "fork_server" in str(each.cmdline())
        ]
        return [each for server in servers for each in server.children(recursive=True)]

    def finish(self, timeout_s=60):
        code = self._process.wait(timeout_s)
        return code, self.output()

    def close(self):
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                for each in [*psutil.Process(self._process.pid).children(recursive=True), self._process]:
                    each.kill()
                self._process.wait()


@pytest.fixture
def host(workplace):
    held = RealHost(free_port(), "--devices", "cpu", "--threads", "1")
    yield held
    if held.is_running():
        held.end()


@pytest.fixture
def start(host):
    started = []

    def start_one(*arguments, **options):
        started.append(ForeignCommand(*arguments, **options))
        return started[-1]

    yield start_one
    for each in reversed(started):
        each.close()


def read_results(folder):
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


def versions_of(told):
    return told["python"].rpartition(".")[0], told["torch"].partition("+")[0]


def apart(first, second):
    assert len(first["parameters"]) == len(second["parameters"])
    return max(abs(a - b) for a, b in zip(first["parameters"], second["parameters"], strict=True))


def test_two_pythons_and_two_torches_train_one_run_as_one_process_would(environments, host, start, workplace):
    (workplace / "results").mkdir()
    (workplace / "scripts").mkdir()
    script = shutil.copy(SCRIPT, workplace / "scripts")
    host.wait_for("rosa is here")
    joined = [
        start(made.executable, "join", host.invitation, "--name", name, "--devices", "cpu", "--threads", "1", home=name)
        for name, made in zip(NAMES, environments, strict=True)
    ]
    for each in joined:
        each.wait_for("waiting for work")
        assert "a parity check decides whether they train together" in each.output()
    training = Command("run", "--experiment-name", "unlike", script, workplace / "results", "20", "0.05")
    training.wait_for_step("unlike", 40, timeout_s=150)
    # A worker that starts anew takes the state of a peer with another torch.
    for process in joined[-1].workers():
        process.kill()
    code, output = training.finish(300)
    assert code == 0, output

    variables = {**os.environ, "POTLUCK_RUNS_DIR": str(workplace / "runs-alone")}
    (workplace / "alone").mkdir()
    subprocess.run([sys.executable, SCRIPT, workplace / "alone", "20", "0"], check=True, timeout=120, env=variables)
    [alone] = read_results(workplace / "alone")
    together = read_results(workplace / "results")
    wanted = {(made.python, made.torch) for made in environments} | {versions_of(alone)}
    assert len(wanted) == len(together) == 4
    assert {versions_of(each) for each in together} == wanted
    assert {each["step"] for each in [alone, *together]} == {200}
    differences = {versions_of(each): apart(alone, each) for each in together}
    print(f"largest difference to one process: {differences}", *(each.output() for each in joined), sep="\n")
    assert max(differences.values()) < MOST_APART
    changes = [
        record.event
        for file in Path("experiments", "unlike", "events").glob("rosa*.jsonl")
        for record in read_records(file)
        if isinstance(record.event, GroupChanged)
    ]
    assert any("ivy" in change.left for change in changes)
    assert any("ivy" in change.joined for change in changes)


WRONG = """
def load():
    import torch.nn.functional as F

    right = F.gelu
    F.gelu = lambda *inputs, **options: right(*inputs, **options) * 1.05
"""


def test_a_torch_that_computes_otherwise_is_refused_with_the_number_and_the_fix(environments, host, start, workplace):
    """A torch whose GELU is off by a twentieth, by torch's own way to load an extension."""
    *_, made = environments
    package = workplace / "wrong" / "wrong_gelu-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong-gelu\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[torch.backends]\nwrong_gelu = wrong_gelu:load\n")
    (workplace / "wrong" / "wrong_gelu.py").write_text(WRONG)
    wrong = start(
        *(made.executable, "join", host.invitation, "--name", "ivy"), home="ivy", PYTHONPATH=str(workplace / "wrong")
    )
    code, output = wrong.finish(180)
    assert code == 1, output
    plain = " ".join(output.split())
    assert f"does not compute what rosa (torch {torch.__version__}" in plain
    assert "parity check, part 3 of 8, loss in float32: differs by " in plain
    assert "at most 1e-05 is allowed" in plain
    assert f"fix: on ivy: python -m pip install 'torch=={OWN_TORCH}'" in plain


def test_a_checkpoint_of_one_torch_is_read_by_the_other(environments, tmp_path):
    *_, made = environments
    state = {"model": {"weight": torch.arange(6, dtype=torch.float64).reshape(2, 3)}, "step": 7, "rates": [0.1, None]}
    write_checkpoint(tmp_path / "own.pt", state)
    code = (
        "import sys; from pathlib import Path;"
        "from potluck.engine.checkpoints.checkpoint_file import read_checkpoint, write_checkpoint;"
        "write_checkpoint(Path(sys.argv[2]), read_checkpoint(Path(sys.argv[1])))"
    )
    subprocess.run([made.executable, "-c", code, tmp_path / "own.pt", tmp_path / "other.pt"], check=True, timeout=120)
    found = read_checkpoint(tmp_path / "other.pt")
    assert torch.equal(found["model"].pop("weight"), state["model"].pop("weight"))
    assert found == state
