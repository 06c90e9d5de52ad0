"""Rounds: every member makes many local steps, then one exchange of what its weights moved.

A member is one worker, or an island: workers that exchange gradients in every step among themselves. A round of H steps
takes H * max_m step_m + lateness + exchange + overhead. step_m is the member's own work and, in an island, the
exchange, the lateness and the overhead of each step inside. The lateness of a round is that of sums of H steps: single
steps vary sqrt(H) times as much.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from potluck.planning.cluster import Cluster
from potluck.planning.codes import EXACT, INT4, Code
from potluck.planning.lateness import expected_latest_s
from potluck.planning.round_rule import round_steps as round_steps_for
from potluck.planning.water_filling import CostTable, fill

_ROUND_SAMPLES = 2000  # samples of the rounds whose price in loss was measured, and their steps
_ROUND_STEPS = 32
_LEAST_PART = 0.05
_FEW_MEMBERS = 16
_PRICE = 0.9  # percent of loss for each member more, as the simulations showed

Members = tuple[tuple[int, ...], ...]
"""The workers of each member, by their places in the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """The predicted rounds of some members."""

    members: Members
    shares: tuple[int, ...]
    """Samples a step of every worker of the cluster; 0 for one that is left out."""
    step_s: float
    """A local step of the slowest member."""
    exchange_s: float
    """The exchange at the end of a round."""
    round_steps: int
    lateness_s: float = 0.0
    """How much later than the slowest member's usual time the last member ends a round, on average over rounds."""
    overhead_s: float = 0.0
    """Seconds a round that no split changes, like the commit vote."""

    @property
    def mean_step_s(self) -> float:
        """Seconds of a step with its part of what happens once a round."""
        return self.step_s + (self.lateness_s + self.exchange_s + self.overhead_s) / self.round_steps

    @property
    def samples_per_s(self) -> float:
        return sum(self.shares) / self.mean_step_s

    @property
    def weights(self) -> tuple[float, ...]:
        """Each member's part of the samples."""
        total = sum(self.shares)
        return tuple(sum(self.shares[place] for place in member) / total for member in self.members)

    @property
    def price_percent(self) -> float:
        """0.9 % * (1 / sum of squared weights - 1), more in rounds that are longer than those that were simulated."""
        longer = min(self.round_steps / _ROUND_STEPS, self.round_steps * sum(self.shares) / _ROUND_SAMPLES)
        return _PRICE * (1 / sum(weight**2 for weight in self.weights) - 1) * max(1.0, longer)


def every_worker(cluster: Cluster) -> Members:
    """Every worker as a member of its own."""
    return tuple((place,) for place in range(len(cluster.workers)))


def plan_rounds(cluster: Cluster, batch: int, members: Members, *, round_steps: int | None = None) -> RoundPlan:
    """The rounds of these members: shares with which all members finish a step together, and the exchange."""
    shares = _fill(cluster, batch, members, [0.0] * len(members))
    inside_s = [_inside_s(cluster, member, shares) for member in members]
    if any(inside_s):
        shares = _fill(cluster, batch, members, inside_s)
    step_s = max(member_step_s(cluster, member, shares) for member in members)
    exchange_s = outer_exchange_s(cluster, members) + max(_exact_s(cluster, member) for member in members)
    steps = round_steps_for(batch, step_s=step_s, exchange_s=exchange_s, wished=round_steps)
    return RoundPlan(
        members=members,
        shares=shares,
        step_s=step_s,
        exchange_s=exchange_s,
        round_steps=steps,
        lateness_s=_round_lateness_s(cluster, members, shares, steps),
        overhead_s=cluster.overhead_among_s(len(members)),
    )


def without_idlers(
    cluster: Cluster, batch: int, plan: RoundPlan, keep: Collection[str] = (), round_steps: int | None = None
) -> RoundPlan:
    """The plan without members whose part does not pay: under a twentieth of the largest, or all are faster without."""
    if len(plan.members) > _FEW_MEMBERS:
        plan = _without_many(cluster, batch, plan, keep, round_steps)
    while 1 < len(plan.members) <= _FEW_MEMBERS:
        may_go = [
            index
            for index, member in enumerate(plan.members)
            if not {cluster.workers[place].machine for place in member} & set(keep)
        ]
        tried = {
            index: plan_rounds(
                cluster,
                batch,
                tuple(member for other, member in enumerate(plan.members) if other != index),
                round_steps=round_steps,
            )
            for index in may_go
        }
        idle = [index for index in may_go if plan.weights[index] < _LEAST_PART * max(plan.weights)]
        slowing = [index for index in may_go if tried[index].samples_per_s > (1 + _LEAST_PART) * plan.samples_per_s]
        leaves = [*idle, *slowing]
        if not leaves:
            break
        plan = max((tried[index] for index in leaves), key=lambda one: one.samples_per_s)
    return plan


def _without_many(
    cluster: Cluster, batch: int, plan: RoundPlan, keep: Collection[str], round_steps: int | None
) -> RoundPlan:
    """Of many members, all idle ones leave at once; then those with the slowest links, as long as that is faster."""

    def machines(member: tuple[int, ...]) -> set[str]:
        return {cluster.workers[place].machine for place in member}

    def link_of(member: tuple[int, ...]) -> float:
        return min(link.bandwidth_bytes_per_s if (link := cluster.links.get(n)) else math.inf for n in machines(member))

    least = _LEAST_PART * max(plan.weights)
    stay = [m for m, weight in zip(plan.members, plan.weights, strict=True) if weight >= least or machines(m) & {*keep}]
    if len(stay) < len(plan.members):
        plan = plan_rounds(cluster, batch, tuple(stay), round_steps=round_steps)
    while len(plan.members) > 1:
        slowest = min(link_of(member) for member in plan.members)
        stay = [member for member in plan.members if link_of(member) > slowest or machines(member) & {*keep}]
        if not stay or len(stay) == len(plan.members):
            break
        tried = plan_rounds(cluster, batch, tuple(stay), round_steps=round_steps)
        if tried.samples_per_s <= (1 + _LEAST_PART) * plan.samples_per_s:
            break
        plan = tried
    return plan


def member_step_s(cluster: Cluster, member: tuple[int, ...], shares: Sequence[int]) -> float:
    """A local step of one member: its slowest worker's work, and what an island waits for in every step.

    At least what the workers' CPU quotas allow, as for all machines in step.
    """
    least_s = max(
        cluster.workers[place].compute.seconds(shares[place]) * cluster.workers[place].least_factor for place in member
    )
    return max(least_s, _work_s(cluster, member, shares) + _inside_s(cluster, member, shares))


def outer_exchange_s(cluster: Cluster, members: Members) -> float:
    """Seconds of the exchange in int4 among the first workers of all members."""
    whole = replace(cluster, exchange=replace(cluster.exchange, num_messages=1))  # all weights at once, no buckets
    return _of(whole, [member[0] for member in members], INT4) if len(members) > 1 else 0.0


def _fill(cluster: Cluster, batch: int, members: Members, inside_s: Sequence[float]) -> tuple[int, ...]:
    """Shares with which all workers finish together, if each step of a member has these seconds of exchange inside."""
    places = [place for member in members for place in member]
    costs = []
    for member, waits_s in zip(members, inside_s, strict=True):
        for place in member:
            worker = cluster.workers[place]
            # Alone, a worker has no pauses in which a container's quota fills up again.
            compute = worker.compute.slowed(worker.alone_factor if len(member) == 1 else 1.0)
            curve = tuple((samples, seconds + waits_s) for samples, seconds in compute.curve)
            costs.append(replace(compute, fixed_s=compute.fixed_s + waits_s, curve=curve))
    filled = fill(CostTable(costs), batch, np.ones((1, len(places)), dtype=bool), np.zeros(len(places), dtype=int))
    shares = [0] * len(cluster.workers)
    for place, share in zip(places, filled.shares[0].tolist(), strict=True):
        shares[place] = share
    return tuple(shares)


def _work_s(cluster: Cluster, member: tuple[int, ...], shares: Sequence[int]) -> float:
    workers = [(cluster.workers[place], shares[place]) for place in member]
    return max(
        worker.compute.seconds(share) * (worker.alone_factor if len(member) == 1 else 1.0) for worker, share in workers
    )


def _inside_s(cluster: Cluster, member: tuple[int, ...], shares: Sequence[int]) -> float:
    """Seconds that a step of an island waits: for gradients, for whoever is late, and for the commit vote."""
    if len(member) < 2:
        return 0.0
    exposed_s = cluster.exchange.exposed_s(_exact_s(cluster, member), _work_s(cluster, member, shares))
    workers = [cluster.workers[place] for place in member]
    work_s = [worker.compute.seconds(shares[place]) for worker, place in zip(workers, member, strict=True)]
    return exposed_s + _lateness_s(work_s, [worker.compute.spread for worker in workers]) + cluster.overhead_s


def _round_lateness_s(cluster: Cluster, members: Members, shares: Sequence[int], num_steps: int) -> float:
    """Of an island the spread is that of its worker that varies most."""
    whole_s = [num_steps * member_step_s(cluster, member, shares) for member in members]
    spreads = [max(cluster.workers[place].compute.spread for place in member) for member in members]
    return _lateness_s(whole_s, [spread / math.sqrt(num_steps) for spread in spreads])


def _lateness_s(usual_s: Sequence[float], spreads: Sequence[float]) -> float:
    return expected_latest_s(np.array(usual_s), np.array(spreads)) - max(usual_s)


def _exact_s(cluster: Cluster, member: tuple[int, ...]) -> float:
    """Seconds of an exact exchange among the workers of one member; passing on a round's result takes no longer."""
    return _of(cluster, member, EXACT) if len(member) > 1 else 0.0


def _of(cluster: Cluster, places: Sequence[int], code: Code) -> float:
    workers = tuple(cluster.workers[place] for place in sorted(places))
    part = replace(cluster, workers=workers, exchange=replace(cluster.exchange, code=code))
    return part.wire_s(np.ones(len(part.machines), dtype=bool))
