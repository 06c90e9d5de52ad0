"""The example script does what it says."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from potluck.events.log import read_records
from potluck.events.types import StepCommitted
from tests.vision_packages import VISION_EXAMPLES, vision_variables

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = EXAMPLES / "own_script.py"


def test_the_example_is_short_and_has_five_potluck_lines():
    lines = SCRIPT.read_text().splitlines()
    assert len(lines) <= 40
    assert sum(line.rstrip().endswith(tuple(f"# {number}" for number in range(1, 6))) for line in lines) == 5


def test_the_ddp_script_needs_five_lines_changed_and_learns(workplace):
    before, after = ((EXAMPLES / name).read_text() for name in ("ddp_script.py", "ddp_script_on_potluck.py"))
    assert [f"# {number}, for " in after for number in range(1, 7)] == [True] * 5 + [False]
    new = set(after.splitlines()) - set(before.splitlines())
    assert sum(" # " in line for line in new) == 5
    assert before[before.index("def make_data") : before.index("def main")] in after
    script = EXAMPLES / "ddp_script_on_potluck.py"
    command = [sys.executable, script, "--epochs", "3", "--global-batch", "16", "--num-samples", "2048"]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # beside other tests, two threads would wait for each other
    done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=100, check=True)
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in done.stdout.splitlines() if "loss" in line]
    assert len(losses) == 3, done.stdout
    assert losses[-1] < 0.8 * losses[0], done.stdout


def test_the_example_learns_alone(workplace):
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=100, check=True)
    accuracy = float(done.stdout.split()[-1])
    assert accuracy > 0.8, done.stdout
    assert (workplace / "experiments" / "own_script-1" / "checkpoints" / "model_epoch_5.pth").is_file()


@pytest.mark.parametrize("meeting", ["static", "c10d"])
def test_the_example_learns_the_same_under_torchrun(workplace, meeting):
    flags = ["--nproc-per-node", "2"]
    if meeting == "c10d":
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        flags += ["--nnodes", "1", "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{port}", "--rdzv_id=tulip"]
    command = [sys.executable, "-m", "torch.distributed.run", *flags, SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("epoch")]
    assert len(lines) == 5, done.stdout  # one line an epoch, not one a worker
    assert float(lines[-1].split()[-1]) > 0.8
    assert "torchft" not in done.stdout + done.stderr
    folder = workplace / "experiments" / "own_script-1"
    assert len(list((folder / "events").iterdir())) == 2
    assert (folder / "checkpoints" / "model_epoch_5.pth").is_file()


@pytest.mark.timeout(220)
def test_the_command_works_under_the_variables_of_old_guides(workplace):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    flags = ["--model-size", "tiny", "--num-samples", "256", "--batch-size", "32", "--backend", "gloo"]
    flags += ["--master-addr", "127.0.0.1", "--master-port", port]
    launch = {"WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "EXPERIMENT_NAME": "old"}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", "from potluck.cli import main; main()", "train", *flags],
            env={**os.environ, **launch, "NODE_RANK": str(rank), "POTLUCK_NAME": name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, name in enumerate(("rosa", "lily"))
    ]
    outputs = [worker.communicate(timeout=180)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    assert "NODE_RANK=0 is taken as RANK=0: one worker on each machine" in outputs[0]
    assert "global batch 64" in outputs[0]
    assert "8 of 8" in outputs[0]
    # The other machine tells of its own part, and where the whole is shown.
    first, *lines = [line for line in outputs[1].splitlines() if "EXPERIMENT_NAME" not in line]
    assert first == (
        f"lily is worker 1 (WORLD_SIZE=2) and shows its own part; worker 0, at 127.0.0.1:{port}, shows the whole run"
    )
    assert lines[0] == f"run old on cpu, folder {workplace / 'experiments' / 'old'}"
    assert lines[1] == "NODE_RANK=1 is taken as RANK=1: one worker on each machine"
    assert any(line.startswith("old finished after step 8 of 8") for line in lines), lines
    assert lines[-1] == "more about this run: potluck report old, on the machine of worker 0"


def adapter_of(folder):
    """The trained parameters of the last checkpoint."""
    checkpoint = torch.load(folder / "checkpoints" / "model_epoch_2.pth", weights_only=True)
    trained = {name: value for name, value in checkpoint["model"].items() if name not in checkpoint["frozen"]}
    assert trained
    assert all("lora_" in name for name in trained)
    return trained


@pytest.mark.timeout(200)
def test_lora_on_two_workers_gives_what_one_gives(workplace):
    """Lines are ragged, and the workers' numbers of tokens differ in every step."""
    script, arguments = EXAMPLES / "finetune_lora.py", ["--epochs", "2", "--longest", "24", "--text", __file__]
    assert len(script.read_text().splitlines()) < 80
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    for launch in ([], torchrun):
        command = [sys.executable, *launch, script, *arguments]
        subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=True)
    alone, together = (adapter_of(workplace / "experiments" / f"finetune_lora-{number}") for number in (1, 2))
    for name, values in alone.items():
        torch.testing.assert_close(together[name], values, rtol=1e-4, atol=1e-5, msg=name)


PAST_THE_MODEL = """
import torch

from potluck.events.log import read_records
from potluck.events.types import StepCommitted
import potluck

model = torch.nn.Linear(4, 2)
run = potluck.start()
prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
loader = run.loader(torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 2)), global_batch=16)
for epoch in run.epochs(1):
    for inputs, targets in loader:
        run.backward((model(inputs) - targets).square().mean())
        optimizer.step()
"""


@pytest.mark.timeout(100)
def test_a_forward_pass_past_the_prepared_model_is_refused(workplace):
    """Its gradients would stay on each machine, and the machines' models would drift apart in silence."""
    (workplace / "past.py").write_text(PAST_THE_MODEL)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "past.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=80, check=False)
    assert done.returncode != 0
    assert "its gradients would not reach the other machines" in done.stderr
    assert "fix: call that model, not model.module or the model from before run.prepare" in done.stderr


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("name", "arguments", "steps", "samples"),
    [
        ("gan", ["--epochs", "2"], 64, 2 * 8192),
        ("diffusion_lora", ["--epochs", "1"], 8, 256),
        ("classify_timm", ["--epochs", "1"], 10, 480),
        ("yolo_detection", ["--epochs", "1"], 4, 128),
    ],
)
def test_an_example_trains_on_two_workers(workplace, name, arguments, steps, samples):
    script = EXAMPLES / f"{name}.py"
    assert len(script.read_text().splitlines()) < 80
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", script, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(vision_variables() if name in VISION_EXAMPLES else {})}
    subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=True)
    files = sorted((workplace / "experiments" / f"{name}-1" / "events").iterdir())
    commits = [one.event for file in files for one in read_records(file) if isinstance(one.event, StepCommitted)]
    assert {one.step for one in commits} == set(range(1, steps + 1))
    assert sum(one.own_samples for one in commits) == samples
    losses = {one.step: one.loss for one in commits}
    assert losses[steps] < 2 * max(losses[step] for step in (1, 2, 3))  # a detector's first boxes find no partner
