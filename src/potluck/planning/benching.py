"""Chooses the machines that train: those with which a step is shortest. The links of benched machines are not used.

A step takes max_i work_i(b_i) + the part of the exchange that does not overlap with work. With few machines every set
of machines is tried, so the choice is exact. With more, only sets are tried that drop the slowest links, then the
slowest machines.
"""

from collections.abc import Collection
from itertools import product
from typing import NamedTuple

import numpy as np

from potluck.core.errors import PlanError
from potluck.planning.cluster import Cluster, check_names
from potluck.planning.water_filling import Numbers, fill

_FEW_MACHINES = 8
_NUM_LINK_LEVELS = 6
_NUM_SIZES = 8


class Choice(NamedTuple):
    """The machines that take part, the shares of all workers, and the time of a step with them."""

    active: Numbers
    shares: Numbers
    step_s: float
    work_s: float


def choose_shares(cluster: Cluster, batch: int, keep: Collection[str] = ()) -> tuple[int, ...]:
    """The shares with the shortest step; machines to keep take part too, each worker of theirs with a sample."""
    check_names(cluster, keep)
    if len(cluster.machines) <= _FEW_MACHINES:
        best = _best_of(cluster, batch, _all_sets(len(cluster.machines)))
    else:
        best = _drop_slow_links(cluster, batch, _one(cluster, batch, np.ones(len(cluster.machines), dtype=bool)))
        best = _drop_the_least_able(cluster, batch, best)
    to_keep = set(keep)
    kept = np.array([name in to_keep for name in cluster.machines])
    if kept.any():
        best = _best_of(cluster, batch, (best.active | kept)[None], least=kept)
    return tuple(best.shares.tolist())


def _best_of(cluster: Cluster, batch: int, sets: Numbers, least: Numbers | None = None) -> Choice:
    """The set with the shortest step of sets [sets, machines], the first of equals; machines of `least` take part."""
    at_least = np.zeros(len(cluster.workers), dtype=int) if least is None else least[cluster.machine_of].astype(int)
    if at_least.sum() > batch:
        raise PlanError(
            f"a global batch of {batch} cannot be split over {at_least.sum()} workers that must take part",
            fix=f"choose a global batch of at least {at_least.sum()} (--global-batch, or global_batch in a script), or "
            "--keep fewer machines",
        )
    filled = fill(cluster.table, batch, sets[:, cluster.machine_of], at_least)
    sure_s = [_sure_s(cluster, *row) for row in zip(sets, filled.work_s.tolist(), strict=True)]
    best, best_s = 0, float("inf")
    for index in sorted(range(len(sets)), key=sure_s.__getitem__):
        if sure_s[index] >= best_s:
            break  # lateness only adds to it
        step_s = _step_s(cluster, sets[index], float(filled.work_s[index]))
        if (step_s, index) < (best_s, best) or best_s == float("inf"):
            best, best_s = index, step_s
    shares = filled.shares[best]
    return Choice(cluster.is_active(shares), shares, best_s, float(filled.work_s[best]))


def _one(cluster: Cluster, batch: int, active: Numbers) -> Choice:
    """The best shares for one set of machines, without computing the costs of the others."""
    workers = np.flatnonzero(active[cluster.machine_of])
    everybody = np.ones((1, len(workers)), dtype=bool)
    filled = fill(cluster.table.only(workers), batch, everybody, np.zeros(len(workers), dtype=int))
    shares = np.zeros(len(cluster.workers), dtype=np.int64)
    shares[workers] = filled.shares[0]
    work_s = float(filled.work_s[0])
    used = cluster.is_active(shares)
    return Choice(used, shares, _step_s(cluster, used, work_s), work_s)


def _step_s(cluster: Cluster, active: Numbers, work_s: float) -> float:
    late_s = _sure_s(cluster, active, work_s) + cluster.lateness_among_s(active, work_s)
    return max(late_s, work_s * float(cluster.least_factors[active[cluster.machine_of]].max(initial=1.0)))


def _sure_s(cluster: Cluster, active: Numbers, work_s: float) -> float:
    """The step if nobody is ever late."""
    num_workers = int(active[cluster.machine_of].sum())
    return work_s + cluster.exchange.exposed_s(cluster.wire_s(active), work_s) + cluster.overhead_among_s(num_workers)


def _all_sets(num_machines: int) -> Numbers:
    """Every set of machines, large sets first, so that a tie benches no machine; then sets with the first machines."""
    sets = np.array(list(product([True, False], repeat=num_machines))[:-1])
    return sets[np.argsort(-sets.sum(1), kind="stable")]


def _drop_slow_links(cluster: Cluster, batch: int, best: Choice) -> Choice:
    """The best choice after trying to drop the machines whose links are slower than each of a few levels."""
    links = [cluster.links.get(name) for name in cluster.machines]
    speed = np.array([np.inf if link is None else link.bandwidth_bytes_per_s for link in links])
    levels = np.unique(speed[best.active])
    for level in levels[1 :: max(1, len(levels) // _NUM_LINK_LEVELS)]:
        active = best.active & (speed >= level)
        best = _shorter(cluster, batch, best, active)
    return best


def _drop_the_least_able(cluster: Cluster, batch: int, best: Choice) -> Choice:
    """The best choice after trying to drop the slowest machines: a ring of fewer machines has fewer hops."""
    most = np.bincount(cluster.machine_of, weights=cluster.table.most(np.array([best.work_s]), batch))
    order = np.argsort(-most / np.bincount(cluster.machine_of), kind="stable")
    order = order[best.active[order]]
    for size in sorted({len(order) * part // _NUM_SIZES for part in range(1, _NUM_SIZES)} - {0}, reverse=True):
        active = np.zeros(len(cluster.machines), dtype=bool)
        active[order[:size]] = True
        best = _shorter(cluster, batch, best, active)
    return best


def _shorter(cluster: Cluster, batch: int, best: Choice, active: Numbers) -> Choice:
    """The better of the best choice and fewer of its machines, which are not tried where they cannot be better.

    With fewer machines work_s never shrinks, so the step must be shorter with today's work_s; and these machines must
    finish the batch in the time that their exchange leaves of the step of the best choice.
    """
    if _step_s(cluster, active, best.work_s) >= best.step_s:
        return best
    left_s = best.step_s - cluster.exchange.exposed_s(cluster.wire_s(active), best.step_s)
    workers = cluster.table.only(np.flatnonzero(active[cluster.machine_of]))
    if workers.most(np.array([left_s]), batch).sum() < batch:
        return best
    return min(best, _one(cluster, batch, active), key=lambda choice: choice.step_s)
