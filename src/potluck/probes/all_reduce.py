"""One machine's process in the doctor's all-reduce: gathers all machines' names, checks a sum, and times a few sizes.

The process prints a description of torch, waits for an order (a line of JSON on stdin), and prints the result. So one
process serves the whole examination, and torch, which takes seconds to import, is imported once.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.distributed.distributed_c10d import ReduceOp

from potluck.core.environment import read_nccl_variables
from potluck.engine.group.nccl import complete_variables
from potluck.measuring.device_rings import NcclRing, StagedRing
from potluck.measuring.link_sweep import Ring
from potluck.probes.rendezvous import Met, meet
from potluck.probes.torch_facts import describe_torch

AnyRing: TypeAlias = Ring | NcclRing | StagedRing

_SIZES_BYTES = (1 << 12, 1 << 20, 1 << 23)
_LONG_S = 0.3  # the first size that takes longer is the last
_NAME_BYTES = 64


def main() -> None:
    """Print a description of torch; take part in one all-reduce if an order comes on stdin."""
    print(json.dumps(describe_torch()), flush=True)  # noqa: T201  the doctor reads it
    order = sys.stdin.readline()
    if order:
        print(json.dumps(reduce_once(json.loads(order))), flush=True)  # noqa: T201


def reduce_once(wanted: dict[str, Any]) -> dict[str, Any]:
    """Meet the other machines' processes, check the sum of an all-reduce, and time all-reduces."""
    torch.set_num_threads(1)
    rank, world_size, timeout = wanted["rank"], wanted["num_machines"], timedelta(seconds=wanted["timeout_s"])
    met = meet(wanted, timeout)
    ring = _make_ring(wanted, met, timeout)
    names = _gather_names(ring, wanted["machine"], rank, world_size)
    numbers = torch.full((1024,), float(rank + 1), device=ring.device)
    ring.sum(numbers)
    is_right = bool((numbers == world_size * (world_size + 1) / 2).all())
    seconds = _measure(ring)
    backend = "nccl" if isinstance(ring, NcclRing) else "gloo"
    return {
        "names": names,
        "is_sum_right": is_right,
        "seconds": seconds,
        "backend": backend,
        "device": str(ring.device),
        "variables": read_nccl_variables() if backend == "nccl" else {},
    }


def _make_ring(wanted: dict[str, Any], met: Met, timeout: timedelta) -> AnyRing:
    """The process group of the wanted backend, for tensors on the wanted device."""
    rank, size, device = wanted["rank"], wanted["num_machines"], torch.device(wanted.get("device") or "cpu")
    if wanted.get("backend") == "nccl":
        complete_variables(wanted["lan_peers"], own_address="", debug_file=Path(os.devnull))
        return NcclRing(met.store, rank, size, timeout, device)
    ring = Ring(met.store, rank, size, timeout, met.device)
    return ring if device.type == "cpu" else StagedRing(ring, device)


def _gather_names(ring: AnyRing, name: str, rank: int, world_size: int) -> list[str]:
    """All machines' names, sent as bytes in a tensor, each machine's in its own row: nothing is unpickled."""
    rows = torch.zeros(world_size, _NAME_BYTES, dtype=torch.uint8)
    raw = name.encode()[:_NAME_BYTES]
    rows[rank, : len(raw)] = torch.tensor(list(raw), dtype=torch.uint8)
    rows = rows.to(ring.device)
    ring.sum(rows)
    return [bytes(row.tolist()).rstrip(b"\0").decode() for row in rows]


def _measure(ring: AnyRing) -> dict[int, float]:
    """Seconds of an all-reduce by size, on the slowest machine, so that all machines stop at the same size."""
    found = {}
    for size in _SIZES_BYTES:
        buffer = torch.zeros(size // 4, device=ring.device)
        if ring.device.type != "cpu":
            torch.accelerator.synchronize(ring.device)
        start = time.perf_counter()
        ring.sum(buffer)
        slowest = torch.tensor([time.perf_counter() - start], device=ring.device)
        ring.sum(slowest, ReduceOp.MAX)
        found[size] = float(slowest)
        if found[size] > _LONG_S:
            break
    return found


if __name__ == "__main__":
    main()
