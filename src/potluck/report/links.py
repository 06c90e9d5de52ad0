"""Whose link slows the exchange of all: concluded from the rates at which workers really sent."""

from collections import defaultdict
from collections.abc import Mapping

from potluck.events.types import MachineUsed
from potluck.planning.cluster import CLEARLY_SLOWER


class SendingRates:
    """What machines told of their rates, and their addresses."""

    def __init__(self) -> None:
        self._machine_at: dict[str, set[str]] = defaultdict(set)
        self._slowness: dict[tuple[str, str], tuple[float, int]] = {}
        """Seconds a byte, added up, and how often; so a way that was slow for a while is not hidden by better times."""

    def add(self, machine: str, used: MachineUsed) -> None:
        """One look at a machine."""
        if used.address:
            self._machine_at[used.address].add(machine)
        for peer, rate in used.sending_bytes_per_s.items():
            seconds, count = self._slowness.get((machine, peer), (0.0, 0))
            self._slowness[machine, peer] = (seconds + 1 / rate, count + 1)

    def slowest_link(self) -> str:
        """The machine, if one stands out."""
        rates = {}
        for (machine, peer), (seconds, count) in self._slowness.items():
            at = self._machine_at.get(peer, set())
            if len(at) == 1:  # on one computer many workers may share an address
                rates[machine, next(iter(at))] = count / seconds
        return slowest_of(rates)


def slowest_of(rates: Mapping[tuple[str, str], float]) -> str:
    """Both ends of a slow way see the same rate. A machine stands out if none of its ways is as fast as the others'."""
    best: dict[str, float] = defaultdict(float)
    for pair, rate in rates.items():
        for machine in pair:
            best[machine] = max(best[machine], rate)
    order = sorted(best, key=best.__getitem__)
    return order[0] if len(order) > 2 and best[order[0]] < CLEARLY_SLOWER * best[order[1]] else ""
