"""Fabric with PotluckFabricStrategy trains as on one process, whatever the split."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]

SCRIPT = """
import sys

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader

sys.path.insert(0, {examples!r})
from fabric_script import PotluckFabricStrategy, make_data

kind, output = sys.argv[1:]
given = {{}} if kind == "plain" else {{"strategy": PotluckFabricStrategy(micro_batch=20)}}
fabric = Fabric(accelerator="cpu", devices=1, **given)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
model, optimizer, schedule = fabric.setup(model, optimizer, scheduler=schedule)
loader = fabric.setup_dataloaders(DataLoader(make_data(1000, seed=1), batch_size=64, shuffle=False))
for epoch in range(3) if kind == "plain" else fabric.strategy.epochs(3):
    for inputs, targets in loader:
        fabric.backward(nn.functional.cross_entropy(model(inputs), targets))
        fabric.clip_gradients(model, optimizer, max_norm=0.5)
        optimizer.step()
        optimizer.zero_grad()
    schedule.step()
fabric.save(output, {{"model": model}})
"""


def run(workplace, *arguments, launch=()):
    script = workplace / "script.py"
    script.write_text(SCRIPT.format(examples=str(EXAMPLES)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launch, script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.timeout(240)
def test_the_same_weights_alone_and_together(workplace):
    run(workplace, "plain", "plain.pt")
    wanted = torch.load("plain.pt")["model"]
    for kind, launch in (("alone", []), ("together", TORCHRUN)):
        run(workplace, "potluck", f"{kind}.pt", launch=launch)
        found = torch.load(f"{kind}.pt")["model"]
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=f"{kind}: {name}")


@pytest.mark.timeout(150)
def test_the_example_learns(workplace):
    command = [sys.executable, *TORCHRUN, EXAMPLES / "fabric_script.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("epoch ") and "accuracy" in line]
    assert len(lines) == 4, done.stdout  # once, not once a worker
    assert float(lines[-1].split()[-1]) > 0.85
