"""A training script for unlike machines: float64, and each machine's final parameters in a file named by versions."""

import json
import platform
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

import potluck

folder, num_epochs, pause_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(1)
inputs = torch.randint(-8, 9, (200, 12), generator=generator).double() / 8
targets = inputs[:, :4].argmax(1)

torch.manual_seed(2)
model: nn.Module = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 4)).double()
optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

run = potluck.start(device="cpu", seed=3, load_balance_policy="static")
model, optimizer = run.prepare(model, optimizer)
loader = run.loader(TensorDataset(inputs, targets), global_batch=20)
for _ in run.epochs(num_epochs):
    for batch, wanted in loader:
        run.backward(nn.functional.cross_entropy(model(batch), wanted))
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(pause_s)
told = {
    "python": platform.python_version(),
    "torch": torch.__version__,
    "step": run.step,
    "parameters": [value for parameter in model.parameters() for value in parameter.flatten().tolist()],
}
(folder / f"python{told['python']}-torch{told['torch']}.json").write_text(json.dumps(told))
run.close()
