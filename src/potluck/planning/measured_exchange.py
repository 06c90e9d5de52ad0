"""Replaces the formula's time for an exchange by the time that a ring has measured."""

from dataclasses import dataclass, replace

import numpy as np

from potluck.planning.cluster import Cluster
from potluck.planning.codes import CODES
from potluck.planning.costs import LinkProfile, calibrate
from potluck.planning.water_filling import Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class RingMeasurement:
    """The measured steps of one ring of workers."""

    machines: tuple[str, ...]
    """The machine of each worker, sorted by name."""
    work_s: float
    """The slowest worker's own work."""
    exposed_s: float
    """The exchange that was left after that work: the wait of the worker that waited least."""
    code: str = "exact"
    """The code in which gradients were exchanged."""


def as_seen(cluster: Cluster, active: Numbers, ring: RingMeasurement) -> Cluster:
    """The cluster with the exchange as a ring of the `active` machines measured it, maybe in another code."""
    measured = replace(cluster, exchange=replace(cluster.exchange, code=CODES.get(ring.code, cluster.exchange.code)))
    if not cluster.links and active.sum() > 1 and ring.exposed_s > 0:
        return replace(cluster, links=_links_as_seen(measured, active, ring.exposed_s))
    wire_s = measured.wire_s(active)
    if wire_s <= 0:
        return replace(cluster, overhead_s=ring.exposed_s)
    seen = calibrate(measured.exchange, wire_s, ring.work_s, ring.exposed_s)
    return replace(cluster, exchange=replace(seen, code=cluster.exchange.code))


def _links_as_seen(cluster: Cluster, active: Numbers, exposed_s: float) -> dict[str, LinkProfile]:
    """The same inferred link for every machine: no link was measured, and a ring does not show which link is slow."""
    num_workers = int(np.bincount(cluster.machine_of)[active].sum())
    sending = cluster.exchange.code.wire_stretch * cluster.exchange.wire_bytes(num_workers)
    link = LinkProfile(latency_s=0.0, bandwidth_bytes_per_s=max(1.0, sending) / exposed_s, is_measured=False)
    return dict.fromkeys(cluster.machines, link)
