"""Plain DistributedDataParallel as older guides have it: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, no Potluck."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    loader_workers = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = TensorDataset(torch.randn(1024, 512), torch.randint(10, (1024,)))
    steps = 0
    for inputs, targets in DataLoader(data, batch_size=512, num_workers=loader_workers):
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    total = torch.stack([p.detach().double().sum() for p in model.parameters()]).sum()
    both = [torch.zeros_like(total) for _ in range(dist.get_world_size())]
    dist.all_gather(both, total)
    assert both[0] == both[1], "the workers do not have the same model"
    print(f"trained {steps} steps", flush=True)
    dist.destroy_process_group()
    os._exit(0)  # in a forked process, leaving main() with the model and its reducer was seen to hang


if __name__ == "__main__":
    main()
