"""A worker that is slow on purpose: with DELAY=data:20:50 its loader sleeps from step 20 to 50, with compute its model.

python -m tests.lab.delayed_worker --worker RESULT --steps 120
"""

import argparse
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset, default_collate

import potluck
from benchmarks.ddp_baseline import small_cnn

DELAY_S = 0.2
BATCH = 48


class Sleepy(nn.Module):
    def __init__(self, inner, nap):
        super().__init__()
        self.inner, self.nap = inner, nap

    def forward(self, inputs):
        self.nap()
        return self.inner(inputs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--policy", default="static")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kind, first, last, *seconds = (os.environ.get("DELAY") or "none:0:0").split(":")
    delay_s = float(seconds[0]) if seconds else DELAY_S
    with potluck.start("run", device="cpu", load_balance_policy=options.policy) as run:

        def nap(where):
            if where == kind and int(first) <= run.step < int(last):
                time.sleep(delay_s)

        def collate(samples):
            nap("data")
            return default_collate(samples)

        model = Sleepy(small_cnn(), lambda: nap("compute"))
        prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
        images = torch.randn(50 * BATCH, 3, 32, 32, generator=torch.Generator().manual_seed(1))
        data = TensorDataset(images, torch.zeros(len(images), dtype=torch.long))
        loader = run.loader(data, global_batch=BATCH, collate=collate)
        for _ in run.epochs(100, max_steps=options.steps):
            for batch, wanted in loader:
                run.backward(nn.functional.cross_entropy(prepared(batch), wanted))
                optimizer.step()
                optimizer.zero_grad()
                print(f"step {run.step}", flush=True)
    options.worker.touch()


if __name__ == "__main__":
    main()
