"""Islands: machines with good links between them exchange gradients in every step, and meet the others in rounds.

With few machines every partition is rated, so the choice is exact but for the rating. A rating takes the shares of a
split without any exchange; the partitions that are rated best are then planned with shares of their own. With more
machines the candidates are the sites that measured pairs show, and machines whose links are faster than a few levels in
one island; where islands are few, two of them are merged as long as that makes the run faster.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations

from potluck.planning.cluster import Cluster
from potluck.planning.rounds import Members, RoundPlan, member_step_s, outer_exchange_s, plan_rounds
from potluck.planning.sites import find_sites

_FEW_MACHINES = 8
_NUM_LINK_LEVELS = 6
# One percent of loss is worth about a tenth of the speed: in the simulations the fastest machine alone, which trained
# 20 and 44 % fewer samples in the same time, ended 2.0 and 6.6 % higher.
_SPEED_OF_A_PERCENT = 0.1

Partition = tuple[tuple[str, ...], ...]


def find_islands(
    cluster: Cluster,
    batch: int,
    machines: Sequence[str],
    *,
    round_steps: int | None = None,
) -> RoundPlan:
    """The rounds of the best partition of these machines, by speed and price in loss."""

    def planned(partition: Partition) -> RoundPlan:
        members = members_of(cluster, partition)
        return plan_rounds(cluster, batch, members, round_steps=round_steps)

    apart = planned(tuple((name,) for name in machines))
    if len(machines) <= _FEW_MACHINES:
        plans = [planned(partition) for partition in _best_rated(cluster, machines, apart)]
    else:
        plans = [apart, *_of_many(cluster, machines, planned)]
    return max(plans, key=_worth)


def _of_many(
    cluster: Cluster, machines: Sequence[str], planned: Callable[[Partition], RoundPlan]
) -> Iterator[RoundPlan]:
    """The plans of a few partitions of many machines: one island, islands by links, and the sites, merged if few."""
    yield planned((tuple(machines),))
    rates = {name: link.bandwidth_bytes_per_s for name in machines if (link := cluster.links.get(name))}
    levels = sorted(set(rates.values()))[1:]
    for level in levels[:: max(1, len(levels) // _NUM_LINK_LEVELS)]:
        fast = tuple(name for name in machines if rates.get(name, level) >= level)
        yield planned((fast, *((name,) for name in machines if name not in set(fast))))
    sites = find_sites(machines, cluster.pairs)
    if 1 < len(sites) < len(machines):
        yield planned(sites)
        if len(sites) <= _FEW_MACHINES:
            yield from _merge(sites, planned)


def _worth(plan: RoundPlan) -> float:
    return plan.samples_per_s / (1 + _SPEED_OF_A_PERCENT * plan.price_percent)


def members_of(cluster: Cluster, partition: Partition) -> Members:
    """The workers of each island."""
    places: dict[str, list[int]] = {}
    for place, worker in enumerate(cluster.workers):
        places.setdefault(worker.machine, []).append(place)
    return tuple(tuple(sorted(place for name in island for place in places.get(name, ()))) for island in partition)


def islands_of(cluster: Cluster, plan: RoundPlan) -> Partition:
    """The machines of each member."""
    return tuple(tuple(dict.fromkeys(cluster.workers[place].machine for place in member)) for member in plan.members)


def _best_rated(cluster: Cluster, machines: Sequence[str], apart: RoundPlan) -> set[Partition]:
    """The partitions that are worth a plan: of each number of islands those whose steps are shortest."""

    @cache
    def step_s(island: tuple[str, ...]) -> float:
        return member_step_s(cluster, members_of(cluster, (island,))[0], apart.shares)

    @cache
    def meeting_s(firsts: tuple[str, ...]) -> float:
        return outer_exchange_s(cluster, members_of(cluster, tuple((name,) for name in firsts)))

    def rate(partition: Partition, of_all: Callable[[list[float]], float]) -> float:
        seconds = of_all([step_s(island) for island in partition])
        return seconds + meeting_s(tuple(island[0] for island in partition)) / apart.round_steps

    # With shares of its own a partition's step comes from that of its slowest island towards the mean of all. Fewer
    # islands cost less loss, so the best partitions into each number of islands are planned.
    every: dict[int, list[Partition]] = {}
    for partition in _partitions(tuple(machines)):
        every.setdefault(len(partition), []).append(partition)
    ratings: list[Callable[[list[float]], float]] = [max, lambda all_s: sum(all_s) / len(all_s)]
    return {
        min(alike, key=lambda one, of_all=of_all: rate(one, of_all))  # type: ignore[misc]
        for alike in every.values()
        for of_all in ratings
    }


def _partitions(machines: tuple[str, ...]) -> Iterator[Partition]:
    """Every way to put the machines into islands."""
    if not machines:
        yield ()
        return
    first, *others = machines
    for size in range(len(others) + 1):
        for more in combinations(others, size):
            rest = tuple(name for name in others if name not in more)
            for partition in _partitions(rest):
                yield ((first, *more), *partition)


def _merge(partition: Partition, planned: Callable[[Partition], RoundPlan]) -> Iterator[RoundPlan]:
    """The plans of ever larger islands: the two whose merging is best are merged, as long as that is better."""
    best = planned(partition)
    while len(partition) > 1:
        tried: list[tuple[RoundPlan, Partition]] = []
        for one, other in combinations(partition, 2):
            merged = ((*one, *other), *(island for island in partition if island not in (one, other)))
            tried.append((planned(merged), merged))
        merged_plan, partition = max(tried, key=lambda pair: _worth(pair[0]))
        if _worth(merged_plan) <= _worth(best):
            return
        best = merged_plan
        yield best
