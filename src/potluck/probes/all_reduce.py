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
from torch.distributed.distributed_c10d import ReduceOp

from potluck.measuring.link_sweep import Ring
from potluck.probes.rendezvous import meet
from potluck.probes.torch_facts import describe_torch

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
    torch.set_num_threads(1)
    rank, world_size, timeout = wanted["rank"], wanted["num_machines"], timedelta(seconds=wanted["timeout_s"])
    met = meet(wanted, timeout)
    ring = Ring(met.store, rank, world_size, timeout, met.device)
    names = _gather_names(ring, wanted["machine"], rank, world_size)
    numbers = torch.full((1024,), float(rank + 1))
    ring.sum(numbers)
    is_right = bool((numbers == world_size * (world_size + 1) / 2).all())
    seconds = _measure(ring)
    return {"names": names, "is_sum_right": is_right, "seconds": seconds}


def _gather_names(ring: Ring, name: str, rank: int, world_size: int) -> list[str]:
    """Names travel as bytes in a tensor, each machine's in its own row: nothing is unpickled."""
    rows = torch.zeros(world_size, _NAME_BYTES, dtype=torch.uint8)
    raw = name.encode()[:_NAME_BYTES]
    rows[rank, : len(raw)] = torch.tensor(list(raw), dtype=torch.uint8)
    ring.sum(rows)
    return [bytes(row.tolist()).rstrip(b"\0").decode() for row in rows]


def _measure(ring: Ring) -> dict[int, float]:
    """Seconds of an all-reduce by size; all stop at the same size, since they agree on the slowest's time."""
    found = {}
    for size in _SIZES_BYTES:
        buffer = torch.zeros(size // 4)
        start = time.perf_counter()
        ring.sum(buffer)
        slowest = torch.tensor([time.perf_counter() - start])
        ring.sum(slowest, ReduceOp.MAX)
        found[size] = float(slowest)
        if found[size] > _LONG_S:
            break
    return found


if __name__ == "__main__":
    main()
