"""Makes a scenario's parts from profiles."""

from collections.abc import Iterable
from dataclasses import replace

from potluck.core.cards import short_name
from potluck.core.errors import SettingsError, did_you_mean
from potluck.measuring.profile_store import StoredProfile
from potluck.planning.cluster import Cluster
from potluck.simulate.observing import with_spread
from potluck.simulate.scenario import TOPOLOGIES, Topology

HOST_LOAD = 0.0006
"""The part of one core that a host spends on each joined machine: 150 took 9 % (docs/decisions.md)."""


def with_usual_spread(cluster: Cluster, spread: float) -> Cluster:
    """The cluster, with this spread for machines where nobody measured how much their steps vary."""
    workers = tuple(replace(one, compute=with_spread(one.compute, spread)) for one in cluster.workers)
    return replace(cluster, workers=workers)


def kinds_of(profiles: Iterable[StoredProfile]) -> dict[str, str]:
    """By machine: what it is."""
    return {one.machine: short_name(one.specification) if one.specification else one.device for one in profiles}


def check_topology(name: str) -> Topology:
    """The topology of that name."""
    for known in TOPOLOGIES:
        if known == name:
            return known
    raise SettingsError(f"there is no topology {name!r}", fix=did_you_mean(name, TOPOLOGIES))
