"""One worker of the doctor's all-reduce: gathers everybody's name, checks the sum, and times a few sizes.

It prints what torch says of itself, waits for its order, a line of JSON, and prints what came of it. So torch, which
takes seconds to import, is imported once for an examination.
"""

import json
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from potluck.core.environment import use_gloo_interface
from potluck.engine.torch_facts import describe_torch

_SIZES_BYTES = (1 << 12, 1 << 20, 1 << 23)
_LONG_S = 0.3  # a size that takes longer is the last
_NAME_BYTES = 64


def main() -> None:
    """Describe torch; take part once, if that is wanted."""
    print(json.dumps(describe_torch()), flush=True)  # noqa: T201  the doctor reads it
    order = sys.stdin.readline()
    if order:
        print(json.dumps(reduce_once(json.loads(order))), flush=True)  # noqa: T201


def reduce_once(wanted: dict[str, Any]) -> dict[str, Any]:
    """Meet the others, add up, measure."""
    if wanted["interface"]:
        use_gloo_interface(wanted["interface"])
    torch.set_num_threads(1)
    rank, world_size = wanted["rank"], wanted["num_machines"]
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{wanted['meeting']}:{wanted['port']}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=wanted["timeout_s"]),
    )
    names = _gather_names(wanted["machine"], world_size)
    numbers = torch.full((1024,), float(rank + 1))
    dist.all_reduce(numbers)
    is_right = bool((numbers == world_size * (world_size + 1) / 2).all())
    seconds = _measure()
    dist.destroy_process_group()
    return {"names": names, "is_sum_right": is_right, "seconds": seconds}


def _gather_names(name: str, world_size: int) -> list[str]:
    """Names travel as bytes in a tensor: nothing is unpickled."""
    mine = torch.zeros(_NAME_BYTES, dtype=torch.uint8)
    raw = name.encode()[:_NAME_BYTES]
    mine[: len(raw)] = torch.tensor(list(raw), dtype=torch.uint8)
    everybody = [torch.zeros_like(mine) for _ in range(world_size)]
    dist.all_gather(everybody, mine)
    return [bytes(one.tolist()).rstrip(b"\0").decode() for one in everybody]


def _measure() -> dict[int, float]:
    """Seconds of an all-reduce by size; all stop at the same size, since they agree on the slowest's time."""
    found = {}
    for size in _SIZES_BYTES:
        buffer = torch.zeros(size // 4)
        start = time.perf_counter()
        dist.all_reduce(buffer)
        slowest = torch.tensor([time.perf_counter() - start])
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        found[size] = float(slowest)
        if found[size] > _LONG_S:
            break
    return found


if __name__ == "__main__":
    main()
