"""What a plan is made from: workers with their costs, links, and the exchange of gradients."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from potluck.core.errors import PlanError
from potluck.planning.costs import ComputeProfile, Exchange, LinkProfile
from potluck.planning.lateness import expected_latest_s
from potluck.planning.sites import PairRates, Pairs, find_sites, rates_of, shared_bandwidth
from potluck.planning.water_filling import CostTable, Numbers

_CLEARLY_SLOWER = 0.7  # below this part of the next slowest link's rate, the difference is not measuring error


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One training process and its cost."""

    name: str
    machine: str
    compute: ComputeProfile
    stretch: float | None = 1.0
    """How much longer the worker's work takes without the pauses of a ring, with which `compute` was measured, because
    a container's CPU quota allows only bursts; None if there is a quota and its effect is not measured yet."""
    coding_factor: float = 1.0
    """How much longer coding gradients takes on this worker's machine than planning/codes.py says."""
    least_factor: float = 1.0
    """A step is at least this many times the worker's work, by the stretch that an earlier run kept. 1 during a run:
    its own steps contain what a quota costs, and just after a quota has changed the stretch is wrong."""
    is_measured: bool = True
    """False if the worker's cost comes from the table of devices."""

    @property
    def alone_factor(self) -> float:
        return self.stretch or 1.0


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The workers in the order that all workers agree on, and the links between their machines."""

    workers: tuple[Worker, ...]
    links: Mapping[str, LinkProfile]
    """By machine; the link of a machine that is missing here was not measured, and exchange over it counts as free."""
    exchange: Exchange
    overhead_s: float = 0.0
    """Seconds a step that no split changes, like the commit vote."""
    pairs: Pairs = field(default_factory=dict)
    """By two machines: the link between them, which may be slower than the links of both. A pair may be missing."""

    def __post_init__(self) -> None:
        if not self.workers:
            raise PlanError("there is no worker to plan for", fix="measure this machine first: potluck profile")

    @cached_property
    def machines(self) -> tuple[str, ...]:
        """Machines in the order of their first workers."""
        return tuple(dict.fromkeys(worker.machine for worker in self.workers))

    def of(self, machines: Collection[str]) -> "Cluster":
        """The same cluster with these machines only."""
        return replace(self, workers=tuple(worker for worker in self.workers if worker.machine in machines))

    @cached_property
    def table(self) -> CostTable:
        """The costs of all workers as arrays."""
        return CostTable([worker.compute for worker in self.workers])

    @cached_property
    def machine_of(self) -> Numbers:
        """Every worker's machine, by its place in `machines`."""
        place = {name: index for index, name in enumerate(self.machines)}
        return np.array([place[worker.machine] for worker in self.workers])

    def wire_s(self, active: Numbers) -> float:
        """Seconds of the exchange among the machines of a mask, before any overlap with work."""
        if active.sum() < 2:
            return 0.0  # within one machine nothing is on a wire
        num_workers, latency_s, bandwidth = self._ring
        return self.exchange.wire_s(
            int(num_workers[active].sum()),
            float(latency_s[active].max()),
            min(float(bandwidth[active].min()), self._pair_bandwidth(active)),
            float(self._coding_factors[active[self.machine_of]].max()),
        )

    def overhead_among_s(self, number: int) -> float:
        """The overhead of a step or a round in which so many take part; there is none for one that trains alone."""
        return self.overhead_s if number > 1 else 0.0

    @cached_property
    def least_factors(self) -> Numbers:
        """A step is at least work * factor of every worker."""
        return np.array([worker.least_factor for worker in self.workers])

    def lateness_s(self, work_s: Numbers) -> float:
        """How much later than the slowest worker's usual time the last worker finishes, on average over steps."""
        return expected_latest_s(work_s, self._spreads) - float(work_s.max())

    def lateness_among_s(self, active: Numbers, work_s: float) -> float:
        """The same if the workers of these machines all finish after work_s, as a good plan lets them."""
        spreads = self._spreads[active[self.machine_of]]
        if not spreads.any():
            return 0.0
        return expected_latest_s(np.full(len(spreads), work_s), spreads) - work_s

    @cached_property
    def _spreads(self) -> Numbers:
        return np.array([worker.compute.spread for worker in self.workers])

    def _pair_bandwidth(self, active: Numbers) -> float:
        """Bytes/s at which workers send over the links between these machines; infinite if no pair was measured."""
        if not self.pairs:
            return float("inf")
        ring = tuple(self.machines[place] for place in self.machine_of.tolist() if active[place])
        return shared_bandwidth(ring, self._pair_rates, self.sites, is_all_to_all=self.exchange.code.is_all_to_all)

    @cached_property
    def _pair_rates(self) -> PairRates:
        return rates_of(self.pairs)

    @cached_property
    def _coding_factors(self) -> Numbers:
        return np.array([worker.coding_factor for worker in self.workers])

    @cached_property
    def sites(self) -> tuple[tuple[str, ...], ...]:
        """The machines that share a fast network, by the measured pairs."""
        return find_sites(self.machines, self.pairs)

    def is_active(self, shares: Numbers) -> Numbers:
        """The mask of the machines that take samples."""
        return np.bincount(self.machine_of, weights=shares, minlength=len(self.machines)) > 0

    def slowest_link(self, shares: Sequence[int]) -> str:
        """The machine with samples whose link is clearly slower than all others; empty if no link is."""
        active = zip(self.machines, self.is_active(np.array(shares)).tolist(), strict=True)
        known = {name: self.links[name].bandwidth_bytes_per_s for name, is_in in active if is_in and name in self.links}
        return clearly_slowest(known)

    @cached_property
    def _ring(self) -> tuple[Numbers, Numbers, Numbers]:
        links = [self.links.get(name) for name in self.machines]
        latency_s = np.array([0.0 if link is None else link.latency_s for link in links])
        bandwidth = np.array([np.inf if link is None else link.bandwidth_bytes_per_s for link in links])
        return np.bincount(self.machine_of), latency_s, bandwidth

    def solo_speed(self, machine: str, most: int) -> float:
        """Samples/s of a machine's workers together, each training alone, without the pauses of a ring."""
        own = [worker for worker in self.workers if worker.machine == machine]
        return sum(worker.compute.solo_speed(most) / worker.alone_factor for worker in own)

    def solo_speeds(self, most: int) -> dict[str, float]:
        """The solo speed of every machine."""
        speeds = dict.fromkeys(self.machines, 0.0)
        for worker in self.workers:
            speeds[worker.machine] += worker.compute.solo_speed(most) / worker.alone_factor
        return speeds


def clearly_slowest(rates: Mapping[str, float]) -> str:
    """The machine whose rate is clearly lower than that of every other machine; empty if there is none."""
    order = sorted(rates, key=rates.__getitem__)
    return order[0] if len(order) > 1 and rates[order[0]] < _CLEARLY_SLOWER * rates[order[1]] else ""


def check_names(cluster: Cluster, names: Collection[str]) -> None:
    """Refuse names of machines that are not in the cluster."""
    unknown = sorted(set(names).difference(cluster.machines))
    if unknown:
        raise PlanError(
            f"there is no machine {unknown[0]!r} to keep", fix=f"choose of: {', '.join(sorted(cluster.machines))}"
        )
