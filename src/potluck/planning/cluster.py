"""What a plan is made from: workers with their costs, links, and what is exchanged."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from potluck.core.errors import PlanError
from potluck.planning.costs import ComputeProfile, Exchange, LinkProfile
from potluck.planning.water_filling import CostTable, Numbers

CLEARLY_SLOWER = 0.7  # of the next rate: less is no doubt of the measuring


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One training process and its cost."""

    name: str
    machine: str
    compute: ComputeProfile
    stretch: float | None = 1.0
    """What its work takes without pauses, against `compute`, which was measured with the pauses of a ring; None if a
    quota of its cores is known and nothing else."""

    @property
    def alone_factor(self) -> float:
        return self.stretch or 1.0


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The workers in the order that all of them agree on, and what lies between them."""

    workers: tuple[Worker, ...]
    links: Mapping[str, LinkProfile]
    """By machine; a machine that is not here has a link that nobody measured: its exchange counts as free."""
    exchange: Exchange
    overhead_s: float = 0.0
    """Seconds a step that no split changes: the vote, and the rest."""

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
        """The exchange among the machines of a mask, before any of it is hidden."""
        if active.sum() < 2:
            return 0.0  # within one machine nothing is on a wire
        num_workers, latency_s, bandwidth = self._ring
        return self.exchange.wire_s(
            int(num_workers[active].sum()), float(latency_s[active].max()), float(bandwidth[active].min())
        )

    def is_active(self, shares: Numbers) -> Numbers:
        """The mask of the machines that take samples."""
        return np.bincount(self.machine_of, weights=shares, minlength=len(self.machines)) > 0

    def slowest_link(self, shares: Sequence[int]) -> str:
        """The machine that takes part with a link clearly slower than all others'; empty if none stands out."""
        active = zip(self.machines, self.is_active(np.array(shares)).tolist(), strict=True)
        known = {name: self.links[name].bandwidth_bytes_per_s for name, is_in in active if is_in and name in self.links}
        order = sorted(known, key=known.__getitem__)
        return order[0] if len(order) > 1 and known[order[0]] < CLEARLY_SLOWER * known[order[1]] else ""

    @cached_property
    def _ring(self) -> tuple[Numbers, Numbers, Numbers]:
        links = [self.links.get(name) for name in self.machines]
        latency_s = np.array([0.0 if link is None else link.latency_s for link in links])
        bandwidth = np.array([np.inf if link is None else link.bandwidth_bytes_per_s for link in links])
        return np.bincount(self.machine_of), latency_s, bandwidth

    def solo_speed(self, machine: str, most: int) -> float:
        """Samples/s of a machine's workers, each alone and without pauses."""
        own = [worker for worker in self.workers if worker.machine == machine]
        return sum(worker.compute.solo_speed(most) / worker.alone_factor for worker in own)


def check_names(cluster: Cluster, names: Collection[str]) -> None:
    """Refuse names of machines that are not there."""
    unknown = sorted(set(names) - set(cluster.machines))
    if unknown:
        raise PlanError(
            f"there is no machine {unknown[0]!r} to keep", fix=f"choose of: {', '.join(sorted(cluster.machines))}"
        )
