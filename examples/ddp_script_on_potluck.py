"""examples/ddp_script.py with five lines of Potluck in place of DDP's: potluck run examples/ddp_script_on_potluck.py.

The lines that changed are numbered; what DDP needed besides them is gone.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

import potluck


def make_data(num_samples: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_samples, 256, generator=generator)
    return TensorDataset(inputs, inputs[:, :10].argmax(1))  # which of the first ten numbers is the largest


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=768, help="samples a step of all machines together")
    parser.add_argument("--num-samples", type=int, default=20_480)
    options = parser.parse_args()

    run = potluck.start()  # 1, for init_process_group

    dataset = make_data(options.num_samples)
    loader = run.loader(dataset, global_batch=options.global_batch)  # 2, for DistributedSampler and DataLoader
    model = make_model()
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = run.prepare(model, optimizer)  # 3, for DistributedDataParallel
    loss_function = nn.CrossEntropyLoss()

    for epoch in run.epochs(options.epochs):  # 4, for range
        began_at = time.perf_counter()
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = loss_function(model(inputs), targets)
            run.backward(loss)  # 5, for loss.backward
            optimizer.step()
        samples_per_s = len(dataset) / (time.perf_counter() - began_at)
        run.print(f"epoch {epoch + 1}: loss {loss.item():.3f}, {samples_per_s:,.0f} samples/s")


if __name__ == "__main__":
    main()
