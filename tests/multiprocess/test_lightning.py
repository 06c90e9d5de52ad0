"""Lightning's Trainer with PotluckStrategy trains as on one process, whatever the split, also after a resume."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from potluck.events.log import read_records
from potluck.events.types import StepCommitted

EXAMPLES = Path(__file__).parents[2] / "examples"
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]

SCRIPT = """
import sys

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader

sys.path.insert(0, {examples!r})
from lightning_script import Classifier, make_data
from potluck.integrations.lightning import PotluckStrategy

kind, output, *rest = sys.argv[1:]
losses = []


class Watched(Classifier):
    def training_step(self, batch, index):
        loss = super().training_step(batch, index)
        losses.append(loss.item())
        return loss


torch.manual_seed(0)
train = DataLoader(make_data(1024, seed=1), batch_size=64, shuffle=False)
held_out = DataLoader(make_data(256, seed=2), batch_size=64)
trainer = Trainer(
    strategy="auto" if kind == "plain" else PotluckStrategy(micro_batch=20),
    accelerator="cpu",
    max_epochs=3,
    accumulate_grad_batches=2,
    gradient_clip_val=0.5,
    logger=False,
    enable_progress_bar=False,
    callbacks=[
        ModelCheckpoint(output, filename="{{step}}", save_top_k=-1, every_n_epochs=1),
        EarlyStopping("val_accuracy", mode="max", patience=5),
    ],
)
trainer.fit(Watched(), train, held_out, ckpt_path=rest[0] if rest else None)
print("global_step", trainer.global_step, "epoch", trainer.current_epoch)
"""


def run(workplace, *arguments, launch=()):
    script = workplace / "script.py"
    script.write_text(SCRIPT.format(examples=str(EXAMPLES)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launch, script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def checkpoints(folder):
    return sorted(folder.glob("step=*.ckpt"), key=lambda file: int(file.stem.split("=")[1]))


def weights(folder):
    return torch.load(checkpoints(folder)[-1], weights_only=False)["state_dict"]


@pytest.mark.timeout(300)
def test_the_same_weights_alone_together_and_resumed(workplace):
    plain = run(workplace, "plain", "plain")
    assert "global_step 24 epoch 3" in plain
    wanted = weights(workplace / "plain")
    middle = str(checkpoints(workplace / "plain")[0])
    for output, launch, rest in (
        ("alone", [], []),
        ("together", TORCHRUN, []),
        ("resumed", TORCHRUN, [middle]),
    ):
        out = run(workplace, "potluck", output, *rest, launch=launch)
        assert "global_step 24 epoch 3" in out, (output, out)
        found = weights(workplace / output)
        for name, value in wanted.items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=f"{output}: {name}")


@pytest.mark.timeout(150)
def test_the_example_learns(workplace):
    command = [sys.executable, *TORCHRUN, EXAMPLES / "lightning_script.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("loss "))  # once, not once a worker
    assert float(line.split()[-1]) > 0.85
    (folder,) = (workplace / "experiments").iterdir()
    records = [one.event for file in sorted((folder / "events").iterdir()) for one in read_records(file)]
    commits = [one for one in records if isinstance(one, StepCommitted)]
    assert len(commits) == 2 * 4 * 32
    assert sum(one.own_samples for one in commits) == 4 * 4096
