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
    images = torch.randn(num_samples, 1, 30, 30, generator=generator)
    stripes = images.view(num_samples, 10, 90).mean(2)
    return TensorDataset(images, stripes.argmax(1))  # which of ten stripes is the brightest


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(3)),
        *(nn.Flatten(), nn.Linear(32 * 5 * 5, 10)),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=96, help="samples a step of all machines together")
    parser.add_argument("--num-samples", type=int, default=3_072)
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
