"""Measures links by all-reduces over Gloo at several message sizes, for each pair of workers and for all workers.

Every worker calls `sweep_links` with the same store, and with a Gloo device on the address that the worker listens on.
"""

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist
from torch.distributed.distributed_c10d import AllreduceOptions, PrefixStore, ReduceOp

from potluck.core.errors import MeasureError
from potluck.measuring.line_fit import Timed, fit_line
from potluck.planning.costs import LinkProfile

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

SIZES = tuple(1 << power for power in (10, 13, 16, 18, 20, 22, 24))
_REPEATS = 5
_LONGEST_S = 0.25  # messages larger than the first that takes longer are left out
_KILO = 1024  # the fit counts bytes in units of this


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSweep:
    """The links that a sweep has measured: the ring of all workers, and each pair."""

    ring: LinkProfile
    pairs: dict[tuple[str, str], LinkProfile]

    def of_each(self) -> dict[str, LinkProfile]:
        """Each worker's own link: the best of its pairs, since a pair is as slow as the slower of its two links."""
        return {
            name: LinkProfile(
                latency_s=min(link.latency_s for link in mine),
                bandwidth_bytes_per_s=max(link.bandwidth_bytes_per_s for link in mine),
                error=min(link.error for link in mine),
            )
            for name in dict.fromkeys(name for pair in self.pairs for name in pair)
            if (mine := [link for pair, link in self.pairs.items() if name in pair])
        }


def sweep_links(store: "Store", rank: int, names: Sequence[str], device: Any, *, timeout_s: float = 60.0) -> LinkSweep:
    """Measure every pair and the ring of all workers; every worker returns the same result."""
    if len(names) < 2:
        raise MeasureError("one machine has no link to measure", fix="join a second machine first")
    timeout = timedelta(seconds=timeout_s)
    everybody = Ring(PrefixStore("everybody", store), rank, len(names), timeout, device)
    pairs = {}
    for first, second in combinations(range(len(names)), 2):
        seconds = torch.zeros(len(SIZES), dtype=torch.float64)
        if rank in (first, second):
            pair = Ring(PrefixStore(f"{first}-{second}", store), int(rank == second), 2, timeout, device)
            seconds = pair.sweep()
        # All workers get the pair's timings, and the next pair begins when this pair is done.
        everybody.sum(seconds, ReduceOp.MAX)
        pairs[names[first], names[second]] = fit_link(2, seconds.tolist())
    return LinkSweep(ring=fit_link(len(names), everybody.sweep().tolist()), pairs=pairs)


def fit_link(num_workers: int, seconds: Iterable[float]) -> LinkProfile:
    """Latency and bandwidth from seconds = 2(n-1) * latency + 2(n-1)/n * bytes / bandwidth; 0 s: not measured."""
    hops = 2 * (num_workers - 1)
    timings = [Timed(size // _KILO, taken_s) for size, taken_s in zip(SIZES, seconds, strict=True) if taken_s > 0]
    line = fit_line(timings, [1.0] * len(timings))
    return LinkProfile(
        latency_s=line.fixed_samples * line.per_sample_s / hops,
        bandwidth_bytes_per_s=hops / num_workers * _KILO / line.per_sample_s,
        error=line.error,
    )


class Ring:
    """A Gloo process group of some of the workers."""

    def __init__(self, store: "Store", rank: int, size: int, timeout: timedelta, device: Any) -> None:
        # Gloo connects at once and gives up soon, so every worker first waits until all are there.
        store.set(f"here/{rank}", "")
        store.wait([f"here/{other}" for other in range(size)], timeout)
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices, options._timeout = [device], timeout
        self.device = torch.device("cpu")
        self._group = gloo(store, rank, size, options)

    def sum(self, values: torch.Tensor, how: Any = ReduceOp.SUM) -> None:
        """All-reduce the values in place."""
        options = AllreduceOptions()
        options.reduceOp = how
        self._group.allreduce([values], options).wait()

    def sweep(self) -> torch.Tensor:
        """Median seconds of an all-reduce by message size, the same on every worker; 0 for sizes that take too long."""
        found = torch.zeros(len(SIZES), dtype=torch.float64)
        for index, size in enumerate(SIZES):
            message = torch.zeros(size // 4)
            self.sum(message)
            taken_s = []
            for _ in range(_REPEATS):
                began_s = time.perf_counter()
                self.sum(message)
                taken_s.append(time.perf_counter() - began_s)
            found[index] = statistics.median(taken_s)
            self.sum(found[index : index + 1], ReduceOp.MAX)
            if found[index] > _LONGEST_S:
                break
        return found
