"""The time of one exchange between simulated machines, with links that vary and share a switch or an uplink.

A ring or a tree ends when its slowest link ends. A link is slower than its rate where TCP loses packets: about
1.22 * segment / (round trip * sqrt(loss)), the formula of Mathis and others.
"""

import math

import numpy as np

from potluck.planning.cluster import Cluster
from potluck.planning.costs import Exchange
from potluck.planning.water_filling import Numbers
from potluck.simulate.scenario import Wires

_SEGMENT_BYTES = 1460
_LEAST_ROUND_TRIP_S = 1e-4
_MATHIS = 1.22


class Network:
    """The links of a simulated cluster."""

    def __init__(self, cluster: Cluster, wires: Wires, generator: np.random.Generator) -> None:
        self._wires = wires
        self._generator = generator
        links = [cluster.links.get(name) for name in cluster.machines]
        self._latency_s = np.array([0.0 if link is None else link.latency_s for link in links])
        rates = np.array([np.inf if link is None else link.bandwidth_bytes_per_s for link in links])
        self._rates = np.minimum(rates, self._with_losses())
        self._site = np.array([wires.sites.get(name, "") for name in cluster.machines])
        self._cluster = cluster

    def _with_losses(self) -> Numbers:
        """The most that TCP sends over each link, with the packets that are lost on it."""
        if not self._wires.packet_loss:
            return np.full(len(self._latency_s), np.inf)
        round_trip_s = np.maximum(2 * self._latency_s, _LEAST_ROUND_TRIP_S)
        return np.asarray(_MATHIS * _SEGMENT_BYTES / (round_trip_s * math.sqrt(self._wires.packet_loss)))

    def exchange_s(self, exchange: Exchange, active: Numbers, *, varies: bool = True) -> float:
        """Seconds of one exchange among the machines of a mask, before any overlap with work."""
        count = int(active.sum())
        if count < 2:
            return 0.0
        workers = int(np.bincount(self._cluster.machine_of)[active].sum())
        rate = min(self._slowest(active, varies=varies), self._shared(active, workers, exchange))
        latency_s = float(self._latency_s[active].max())
        coding = float(max(w.coding_factor for w in self._cluster.workers)) if exchange.code.coding_s_per_byte else 1.0
        if self._wires.topology == "tree" and not exchange.code.is_all_to_all:
            return _tree_s(exchange, workers, latency_s, rate, coding)
        measured = self._of_pairs(exchange, active)
        return max(exchange.wire_s(workers, latency_s, rate, coding), measured)

    def _of_pairs(self, exchange: Exchange, active: Numbers) -> float:
        """The planner's own formula for links that were measured between every two machines; 0 without any."""
        if not self._cluster.pairs:
            return 0.0
        return self._cluster.wire_s(active) if exchange == self._cluster.exchange else 0.0

    def _slowest(self, active: Numbers, *, varies: bool) -> float:
        slowest = float(self._rates[active].min())
        if varies and self._wires.variation:
            slowest *= math.exp(self._wires.variation * self._generator.standard_normal())
        return slowest

    def _shared(self, active: Numbers, workers: int, exchange: Exchange) -> float:
        """The rate of each flow where flows share a switch, or an uplink between sites."""
        rate = math.inf
        if self._wires.shared_bytes_per_s is not None:
            rate = self._wires.shared_bytes_per_s / workers
        if self._wires.uplink_bytes_per_s is not None:
            crossing = self._crossing(active, workers, exchange)
            if crossing:
                rate = min(rate, self._wires.uplink_bytes_per_s / crossing)
        return rate

    def _crossing(self, active: Numbers, workers: int, exchange: Exchange) -> float:
        """Flows of the same time that leave the busiest site."""
        sites, counts = np.unique(self._site[active], return_counts=True)
        if len(sites) < 2:
            return 0.0
        if exchange.code.is_all_to_all:
            return float((counts * (workers - counts) / max(1, workers - 1)).max())
        ring = self._site[active]
        leaves = ring != np.roll(ring, -1)
        return float(max(int((leaves & (ring == site)).sum()) for site in sites))


def _tree_s(exchange: Exchange, workers: int, latency_s: float, rate: float, coding_factor: float) -> float:
    """Up and down a binary tree in a pipeline: 2 log2(n) hops of latency, and every inner worker takes two streams."""
    hops = 2 * math.ceil(math.log2(workers))
    sending_s = 2 * min(2, workers - 1) * exchange.num_bytes * exchange.code.wire_part / rate
    coding_s = exchange.num_bytes * exchange.code.coding_s_per_byte * coding_factor
    return exchange.stretch * (exchange.num_messages * hops * latency_s + sending_s) + coding_s
