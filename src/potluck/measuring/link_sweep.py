"""How fast the links are: sums over Gloo itself, at several message sizes, for each pair of workers and for all.

Every worker calls `sweep_links` with the same store, and with a Gloo device on the address that it listens on.
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
_LONGEST_S = 0.25  # larger messages are left out on a link that takes longer for one
_KILO = 1024  # the unit of the fit


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSweep:
    """What a sweep found."""

    ring: LinkProfile
    pairs: dict[tuple[str, str], LinkProfile]

    def of_each(self) -> dict[str, LinkProfile]:
        """Each worker's own link: the best that its pairs show, since both ends of a pair share the worse one's."""
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
    """Measure every pair and the ring of all; everybody gets the same answer."""
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
        # The two sides agree with everybody else on what was measured, and the next pair begins when all are done.
        everybody.sum(seconds, ReduceOp.MAX)
        pairs[names[first], names[second]] = fit_link(2, seconds.tolist())
    return LinkSweep(ring=fit_link(len(names), everybody.sweep().tolist()), pairs=pairs)


def fit_link(num_workers: int, seconds: Iterable[float]) -> LinkProfile:
    """Latency and bandwidth from seconds = 2(n-1) * latency + 2(n-1)/n * bytes / bandwidth; 0 was not measured."""
    hops = 2 * (num_workers - 1)
    timings = [Timed(size // _KILO, taken_s) for size, taken_s in zip(SIZES, seconds, strict=True) if taken_s > 0]
    line = fit_line(timings, [1.0] * len(timings))
    return LinkProfile(
        latency_s=line.fixed_samples * line.per_sample_s / hops,
        bandwidth_bytes_per_s=hops / num_workers * _KILO / line.per_sample_s,
        error=line.error,
    )


class Ring:
    """Some workers and a Gloo group of theirs."""

    def __init__(self, store: "Store", rank: int, size: int, timeout: timedelta, device: Any) -> None:
        # Gloo connects at once and gives up soon: everybody is there first.
        store.set(f"here/{rank}", "")
        store.wait([f"here/{other}" for other in range(size)], timeout)
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices, options._timeout = [device], timeout
        self._group = gloo(store, rank, size, options)

    def sum(self, values: torch.Tensor, how: Any = ReduceOp.SUM) -> None:
        """In place, over all of them."""
        options = AllreduceOptions()
        options.reduceOp = how
        self._group.allreduce([values], options).wait()

    def sweep(self) -> torch.Tensor:
        """Median seconds of each size, the same on every worker; 0 for sizes that would take too long."""
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
