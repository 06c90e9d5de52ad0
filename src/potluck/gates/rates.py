"""How fast this machine really sends to each other machine, by the kernel's counts of the gate's connections."""

from typing import TYPE_CHECKING

from potluck.gates.messages import Rates
from potluck.machine.flows import Sent, rates_between, read_sent

if TYPE_CHECKING:
    from potluck.gates.gate import Gate


class RateMeter:
    """Send rates since the last look, by the other machine's loopback address."""

    def __init__(self, gate: "Gate") -> None:
        self._gate = gate
        self._before = self._read()

    def look(self) -> Rates:
        now, before = self._read(), self._before
        self._before = now
        rates = rates_between(before, now)
        return Rates(
            own=self._gate.own_address,
            sending_bytes_per_s={self._gate.address_of(machine): rate for machine, rate in rates.items()},
        )

    def _read(self) -> dict[tuple[str, int], Sent]:
        found = {}
        for machine, connection in self._gate.streams.sockets():
            if (sent := read_sent(connection)) is not None:
                found[machine, connection.fileno()] = sent
        return found
