"""All-reduces of several sizes between worker processes of the self-test, by one backend."""

import statistics
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from potluck.engine.group.listening import make_store
from potluck.selftest.orders import Sweep, Swept

_SIZES_BYTES = (1 << 12, 1 << 16, 1 << 20, 1 << 23, 1 << 25)
_REPEATS = 5
_LONG_S = 0.5  # sizes beyond the first that takes longer are left out
_MEET = timedelta(seconds=60)


def sweep(order: Sweep) -> Swept:
    """Meet the other processes; each size is summed once to check the sum, then a few times for its median."""
    device = torch.device(order.device)
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index or 0)
    with_group(order.rank, order.num_workers, order.port, order.backend)
    try:
        return _sweep(order, device)
    finally:
        dist.destroy_process_group()


def with_group(rank: int, num_workers: int, port: int, backend: str) -> None:
    """Make torch's default process group of the worker processes on this machine."""
    if rank == 0:
        store = make_store("127.0.0.1", port, _MEET)
    else:
        store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=_MEET)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=rank, world_size=num_workers, timeout=_MEET)


def _sweep(order: Sweep, device: torch.device) -> Swept:
    wanted = order.num_workers * (order.num_workers + 1) / 2
    found: dict[int, float] = {}
    wrong = ""
    for size in _SIZES_BYTES:
        numbers = torch.full((size // 4,), float(order.rank + 1), device=device)
        dist.all_reduce(numbers)
        off = (numbers - wanted).abs().max().item()
        if off:
            wrong = wrong or f"{size:,} bytes: a sum that must be {wanted:g} is off by {off:g}"
        taken = []
        for _ in range(_REPEATS):
            _wait_for(device)
            began = time.perf_counter()
            dist.all_reduce(numbers)
            _wait_for(device)
            taken.append(time.perf_counter() - began)
        slowest = torch.tensor([statistics.median(taken)], device=device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        found[size] = slowest.item()
        if found[size] > _LONG_S:
            break
    return Swept(seconds=found, is_sum_right=not wrong, wrong=wrong)


def _wait_for(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
