"""A stock DDP script for torchrun, in the style of PyTorch's tutorials: torchrun --nproc-per-node 2 ddp_script.py.

It does not use Potluck. Unchanged on all joined machines: potluck run --plain examples/ddp_script.py.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


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
    parser.add_argument("--batch-size", type=int, default=32, help="samples a step of each process")
    parser.add_argument("--num-samples", type=int, default=3_072)
    parser.add_argument("--snapshot", default="snapshot.pt")
    options = parser.parse_args()

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    dataset = make_data(options.num_samples)
    sampler: DistributedSampler[object] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=options.batch_size, sampler=sampler)
    model = DistributedDataParallel(make_model().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_function = nn.CrossEntropyLoss()

    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        began_at = time.perf_counter()
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = loss_function(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            samples_per_s = len(dataset) / (time.perf_counter() - began_at)
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}, {samples_per_s:,.0f} samples/s", flush=True)
            torch.save(model.module.state_dict(), options.snapshot)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
