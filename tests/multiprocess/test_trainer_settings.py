"""Settings of Hugging Face's Trainer beyond the example's: precisions, streams, evaluation by steps, metrics."""

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

import numpy as np
import torch
from torch.utils.data import IterableDataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from potluck.integrations.transformers import on_potluck

sys.path.insert(0, {examples!r})
from trainer_script import pad

kind, output, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
made = torch.Generator().manual_seed(3)
lines = [
    {{"input_ids": torch.randint(0, 256, (int(length),), generator=made).tolist()}}
    for length in torch.randint(4, 24, (96,), generator=made)
]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(lines)


def accuracy(found):
    rows, wanted = found.predictions[:, :-1].argmax(-1), found.label_ids[:, 1:]
    return {{"accuracy": float((rows == wanted)[wanted != -100].mean()), "rows": len(found.label_ids)}}


torch.manual_seed(0)
sizes = {{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}}
model = LlamaForCausalLM(LlamaConfig(vocab_size=256, **sizes))
resume, streams, metrics = (settings.pop(name, False) for name in ("resume", "streams", "metrics"))
arguments = TrainingArguments(
    output, per_device_train_batch_size=8, gradient_accumulation_steps=2, learning_rate=3e-3, logging_steps=1,
    report_to="none", use_cpu=True, **{{"save_steps": 4, **settings}},
)
trainer = (Trainer if kind == "plain" else on_potluck(Trainer))(
    model=model,
    args=arguments,
    data_collator=pad,
    train_dataset=Stream() if streams else lines[:80],
    eval_dataset=lines[80:],
    compute_metrics=accuracy if metrics else None,
)
trainer.train(resume_from_checkpoint=resume or None)
"""


def run(workplace, kind, output, launch=(), **settings):
    script = workplace / "script.py"
    script.write_text(SCRIPT.format(examples=str(EXAMPLES)))
    command = [sys.executable, *launch, script, kind, output, json.dumps(settings)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def newest(folder):
    return max(folder.glob("checkpoint-*"), key=lambda one: int(one.name.split("-")[1]))


def logged(folder, *names):
    history = json.loads((newest(folder) / "trainer_state.json").read_text())["log_history"]
    return {(entry["step"], name): entry[name] for entry in history for name in names if name in entry}


def compare(workplace, tolerance, names, **settings):
    """Log the same on one process without Potluck, and on two workers; returns what both have printed."""
    plain = run(workplace, "plain", "plain", **settings)
    together = run(workplace, "potluck", "together", TORCHRUN, **settings)
    wanted, found = (logged(workplace / output, *names) for output in ("plain", "together"))
    assert found.keys() == wanted.keys()
    assert {name for _, name in wanted} == set(names)
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, rel=tolerance), (key, value, found[key])
    return plain, together


@pytest.mark.timeout(300)
def test_metrics_of_an_evaluation_by_steps_are_those_of_one_process(workplace):
    names = ("loss", "eval_loss", "eval_accuracy", "eval_rows")
    plain, together = compare(
        workplace, 1e-5, names, num_train_epochs=2, eval_strategy="steps", eval_steps=3, metrics=True, save_steps=5
    )
    assert together.count("'eval_accuracy'") == plain.count("'eval_accuracy'") > 2  # not once a worker


@pytest.mark.timeout(300)
def test_a_stream_is_read_in_its_order_and_begins_again(workplace):
    """It has 96 samples, 6 steps."""
    compare(workplace, 1e-5, ("loss", "eval_loss"), streams=True, max_steps=8, eval_strategy="steps", eval_steps=4)


@pytest.mark.timeout(300)
def test_bf16_is_that_of_one_process_but_for_rounding(workplace):
    compare(workplace, 5e-3, ("loss", "eval_loss"), num_train_epochs=2, bf16=True, eval_strategy="epoch")


@pytest.mark.timeout(300)
def test_the_loss_scale_of_fp16_is_in_the_trainers_checkpoints(workplace):
    """Runs on Potluck only: without it, fp16 needs a GPU."""
    run(workplace, "potluck", "alone", max_steps=8, fp16=True)
    run(workplace, "potluck", "together", TORCHRUN, max_steps=8, fp16=True)
    wanted, found = (logged(workplace / output, "loss") for output in ("alone", "together"))
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, rel=5e-3), key
    file = workplace / "together" / "checkpoint-4" / "scaler.pt"
    scale = torch.load(file, weights_only=True)
    assert scale["scale"] > 0

    # A resumed run goes on with the scale that the checkpoint has.
    torch.save({**scale, "scale": 16.0}, file)
    for later in (workplace / "together").glob("checkpoint-8*"):
        later.rename(workplace / "later")
    run(workplace, "potluck", "together", TORCHRUN, max_steps=8, fp16=True, resume=True)
    assert torch.load(newest(workplace / "together") / "scaler.pt", weights_only=True)["scale"] == 16.0
