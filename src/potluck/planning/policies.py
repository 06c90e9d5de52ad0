"""The policies: pure functions from a cluster and a global batch to all shares, the same result on every worker."""

from collections.abc import Callable, Collection
from typing import TypeAlias

from potluck.core.errors import PlanError, did_you_mean
from potluck.planning.benching import choose_shares
from potluck.planning.cluster import Cluster, check_names
from potluck.planning.split import split_by_shares

Policy: TypeAlias = Callable[[Cluster, int, Collection[str]], tuple[int, ...]]


def split_evenly(cluster: Cluster, batch: int, keep: Collection[str] = ()) -> tuple[int, ...]:
    """Equal shares; if the batch does not divide evenly, the first workers take one sample more."""
    check_names(cluster, keep)
    each, more = divmod(batch, len(cluster.workers))
    return tuple(each + (index < more) for index in range(len(cluster.workers)))


def split_by_speed(cluster: Cluster, batch: int, keep: Collection[str] = ()) -> tuple[int, ...]:
    """Shares in proportion to solo speeds. Every worker takes a sample if there are enough: only `dynamic` benches."""
    check_names(cluster, keep)
    speeds = [worker.compute.solo_speed(batch) for worker in cluster.workers]
    scale = (1 << 40) / max(speeds)
    least: set[int] = set()
    while True:
        weights = [0 if index in least else round(speed * scale) for index, speed in enumerate(speeds)]
        parts = [len(part) for part in split_by_shares(batch - len(least), weights)]
        starved = {index for index, part in enumerate(parts) if part == 0} - least
        if not starved or batch < len(speeds):
            return tuple(1 if index in least else part for index, part in enumerate(parts))
        least |= starved


def split_by_fit(cluster: Cluster, batch: int, keep: Collection[str] = ()) -> tuple[int, ...]:
    """Shares with which all workers finish together, without the machines that would make the step longer."""
    return choose_shares(cluster, batch, keep)


POLICIES: dict[str, Policy] = {"static": split_evenly, "proportional": split_by_speed, "dynamic": split_by_fit}


def find_policy(name: str) -> Policy:
    """Find a policy by name."""
    if name not in POLICIES:
        raise PlanError(f"there is no policy {name!r}", fix=did_you_mean(name, POLICIES))
    return POLICIES[name]
