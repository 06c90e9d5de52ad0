"""Finds the machine whose link slows the all-reduce for all workers, from the rates at which workers really sent."""

from collections import defaultdict
from collections.abc import Mapping

from potluck.events.types import MachineUsed
from potluck.planning.cluster import clearly_slowest


class SendingRates:
    """Sending rates and addresses of machines, from their MachineUsed events."""

    def __init__(self) -> None:
        self._machine_at: dict[str, set[str]] = defaultdict(set)
        self._slowness: dict[tuple[str, str], tuple[float, int]] = {}
        """By machine and peer address: the sum and the number of measured seconds per byte. The mean of seconds, not of
        rates, keeps a link visible that was slow for a while."""

    def add(self, machine: str, used: MachineUsed) -> None:
        """Add one MachineUsed event of a machine."""
        if used.address:
            self._machine_at[used.address].add(machine)
        for peer, rate in used.sending_bytes_per_s.items():
            if rate > 0:
                seconds, count = self._slowness.get((machine, peer), (0.0, 0))
                self._slowness[machine, peer] = (seconds + 1 / rate, count + 1)

    def slowest_link(self) -> str:
        """The machine whose link is clearly the slowest; empty if there is none."""
        rates = {}
        for (machine, peer), (seconds, count) in self._slowness.items():
            at = self._machine_at.get(peer, set())
            if len(at) == 1:  # on one computer many workers may share an address
                rates[machine, next(iter(at))] = count / seconds
        return slowest_of(rates)


def slowest_of(rates: Mapping[tuple[str, str], float]) -> str:
    """The machine whose fastest link is clearly slower than that of any other machine; empty if there is none.

    Fastest links are compared because both ends of a slow link measure the same low rate.
    """
    best: dict[str, float] = defaultdict(float)
    for pair, rate in rates.items():
        for machine in pair:
            best[machine] = max(best[machine], rate)
    return clearly_slowest(best)
