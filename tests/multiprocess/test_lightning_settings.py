"""Settings of Lightning's Trainer beyond the example's: precisions, streams, validation by steps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]

SCRIPT = """
import json
import sys

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.plugins.precision import MixedPrecision
from torch.utils.data import DataLoader, IterableDataset

sys.path.insert(0, {examples!r})
from lightning_script import Classifier, make_data
from potluck.integrations.lightning import PotluckStrategy

kind, output, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
resume, streams, in_fp16 = (settings.pop(name, None) for name in ("resume", "streams", "in_fp16"))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(make_data(384, seed=1))


class Steady(Classifier):
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)  # a stream without length is one epoch for Potluck


class Validated(Callback):
    def on_validation_end(self, trainer, module):
        if not trainer.sanity_checking and trainer.strategy.is_global_zero:
            print("validated", trainer.global_step, float(trainer.callback_metrics["val_accuracy"]))


torch.manual_seed(0)
if in_fp16:
    settings["plugins"] = [MixedPrecision("16-mixed", "cpu")]  # the flag itself is turned into bf16 on a CPU
train = DataLoader(Stream() if streams else make_data(512, seed=1), batch_size=64)
trainer = Trainer(
    strategy="auto" if kind == "plain" else PotluckStrategy(),
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    callbacks=[ModelCheckpoint(output, filename="last", every_n_train_steps=4), Validated()],
    **settings,
)
held_out = DataLoader(make_data(256, seed=2), batch_size=64)
trainer.fit(Steady() if streams else Classifier(), train, held_out, ckpt_path=resume)
"""


def run(workplace, kind, output, launch=(), **settings):
    script = workplace / "script.py"
    script.write_text(SCRIPT.format(examples=str(EXAMPLES)))
    command = [sys.executable, *launch, script, kind, output, json.dumps(settings)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line.startswith("validated")]


def checkpoint(workplace, output):
    newest = max((workplace / output).glob("last*.ckpt"), key=lambda file: file.stat().st_mtime)
    return torch.load(newest, weights_only=False)


def compare(workplace, tolerance, **settings):
    """The same weights on one process without Potluck, and on two workers; returns what both have validated."""
    plain, together = run(workplace, "plain", "plain", **settings), run(workplace, "", "two", TORCHRUN, **settings)
    wanted, found = (checkpoint(workplace, output)["state_dict"] for output in ("plain", "two"))
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=tolerance, atol=tolerance / 10, msg=name)
    return plain, together


@pytest.mark.timeout(200)
def test_validation_by_steps_finds_what_it_finds_on_one_process(workplace):
    plain, together = compare(workplace, 1e-4, max_epochs=1, val_check_interval=4)
    assert len(plain) == 2
    assert together == plain  # after the same steps, once and not once a worker


@pytest.mark.timeout(200)
def test_a_stream_is_read_in_its_order_and_begins_again(workplace):
    """It has 6 batches."""
    compare(workplace, 1e-4, streams=True, max_steps=8)


@pytest.mark.timeout(200)
def test_bf16_is_that_of_one_process_but_for_rounding(workplace):
    compare(workplace, 2e-2, max_epochs=1, precision="bf16-mixed")


@pytest.mark.timeout(200)
def test_the_loss_scale_of_fp16_is_in_lightnings_checkpoints(workplace):
    run(workplace, "", "fp16", TORCHRUN, max_steps=4, in_fp16=True)
    saved = checkpoint(workplace, "fp16")
    assert saved["MixedPrecision"]["scale"] > 0
    saved["MixedPrecision"]["scale"] = 16.0
    torch.save(saved, workplace / "changed.ckpt")
    run(workplace, "", "later", TORCHRUN, max_steps=8, in_fp16=True, resume=str(workplace / "changed.ckpt"))
    assert checkpoint(workplace, "later")["MixedPrecision"]["scale"] == 16.0
