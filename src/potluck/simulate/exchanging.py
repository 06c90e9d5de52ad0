"""How long simulated workers need together for a step or a round: the last one's work, and the exchange after it."""

from dataclasses import replace

import numpy as np

from potluck.planning.cluster import Cluster
from potluck.planning.codes import CODES, INT4
from potluck.planning.costs import Exchange
from potluck.planning.exchanges import with_code
from potluck.planning.replanning.exchange_choice import ExchangeChoice
from potluck.planning.water_filling import Numbers
from potluck.simulate.network import Network


class Exchanging:
    """The exchanges of one run."""

    def __init__(self, cluster: Cluster, network: Network) -> None:
        self._cluster = cluster
        self._network = network
        self._place_of = {name: index for index, name in enumerate(cluster.machines)}
        self._coded = {name: with_code(cluster, name).exchange for name in CODES}
        self._coded[cluster.exchange.code.name] = cluster.exchange

    def together(self, choice: ExchangeChoice, shares: Numbers, work_s: Numbers, num_steps: int) -> tuple[float, float]:
        """When the last worker has done its work, and the seconds of exchange that are left then."""
        active = self._cluster.is_active(shares)
        overhead_s = self._cluster.overhead_among_s(int(active.sum()))
        if num_steps > 1:
            last_s, exchange_s = self._round(choice, work_s, active, num_steps)
            return last_s, exchange_s + overhead_s
        exchange = self._coded[choice.mode if choice.mode in CODES else INT4.name]
        last_s = float(work_s.max())
        return last_s, exchange.exposed_s(self._network.exchange_s(exchange, active), last_s) + overhead_s

    def _round(self, choice: ExchangeChoice, work_s: Numbers, active: Numbers, num_steps: int) -> tuple[float, float]:
        """A round: members, single machines or islands, train on their own, and then their first workers meet."""
        machine_of = self._cluster.machine_of
        islands = [self._mask(island) & active for island in choice.islands if len(island) > 1]
        first = active & ~np.logical_or.reduce([*islands, np.zeros(len(active), dtype=bool)])
        last_s = float(work_s[first[machine_of]].max(initial=0.0))
        for island in islands:
            if island.any():
                last_s = max(last_s, self._island_s(island, work_s, num_steps))
                first[int(np.flatnonzero(island)[0])] = True
        whole = replace(self._coded[INT4.name], num_messages=1, overlap=0.0)
        return last_s, self._network.exchange_s(whole, first)

    def _island_s(self, island: Numbers, work_s: Numbers, num_steps: int) -> float:
        exact: Exchange = self._coded["exact"]
        step_s = work_s * island[self._cluster.machine_of] / num_steps
        own_s = float(step_s.max())
        waits_s = exact.exposed_s(self._network.exchange_s(exact, island), own_s) + self._cluster.overhead_s
        return num_steps * (own_s + self._cluster.lateness_s(step_s) + waits_s)

    def _mask(self, machines: tuple[str, ...]) -> Numbers:
        mask = np.zeros(len(self._place_of), dtype=bool)
        mask[[self._place_of[name] for name in machines if name in self._place_of]] = True
        return mask
