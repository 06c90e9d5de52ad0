"""The gates' part of the orders, equal for all machines: made once for all polls, since it lists every machine."""

import hashlib
import time
from collections.abc import Callable

from potluck.meeting.host.changes import Changes
from potluck.meeting.wire import GateOrders, Orders

_PAUSE_S_A_MACHINE = 0.01


class SharedOrders:
    """Caches the gates' orders, and their members as JSON, until something has changed.

    A digest of orders has two parts: one for the list of members, one for everything else. A change of anything else
    is sent at once. A change of members is sent to a machine at most once in N / 100 seconds for N members, since the
    whole list is sent each time.
    """

    def __init__(
        self, changes: Changes, make: Callable[[], GateOrders], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._changes = changes
        self._make = make
        self._clock = clock
        self._gate: GateOrders | None = None
        self._members_json = b""
        self._members_digest = ""
        self._made_at = -1
        self._told_at: dict[str, float] = {}

    def gate(self) -> GateOrders:
        """The gates' orders: the members, and the machines of each run."""
        if self._gate is None or self._made_at != self._changes.count:
            self._made_at, made = self._changes.count, self._make()
            if self._gate is None or made.members != self._gate.members:
                self._members_json = b"[" + b",".join(one.model_dump_json().encode() for one in made.members) + b"]"
                self._members_digest = hashlib.sha256(self._members_json).hexdigest()[:16]
            self._gate = made
        return self._gate

    def fresh(self) -> GateOrders:
        """The gates' orders as they are at this moment."""
        self.make_again()
        return self.gate()

    def make_again(self) -> None:
        """Make the gates' orders anew at the next use: something may have changed without `Changes.tell`."""
        self._made_at = -1

    def sealed(self, orders: Orders) -> Orders:
        """The orders with their digest; `orders.gate` must be the one that `gate` returned last."""
        rest = hashlib.sha256(_without_members(orders).encode()).hexdigest()[:16]
        return orders.model_copy(update={"digest": f"{rest}-{self._members_digest}"})

    def pause_s(self, machine: str, known: str, orders: Orders) -> float:
        """How long to hold back orders that differ from the `known` digest only in members; 0 or less: send now."""
        if known.partition("-")[0] != orders.digest.partition("-")[0]:
            return 0.0
        pause_s = _PAUSE_S_A_MACHINE * len(orders.gate.members)
        return self._told_at.get(machine, float("-inf")) + pause_s - self._clock()

    def encoded(self, machine: str, orders: Orders) -> bytes:
        """Sealed orders as JSON with all members; notes the time at which the machine gets them."""
        self._told_at[machine] = self._clock()
        return _without_members(orders).encode().replace(b'"members":[]', b'"members":' + self._members_json, 1)


def _without_members(orders: Orders) -> str:
    gate = orders.gate.model_copy(update={"members": []})
    return orders.model_copy(update={"gate": gate}).model_dump_json()
