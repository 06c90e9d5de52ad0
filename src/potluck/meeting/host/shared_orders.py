"""The part of the orders that all machines hear alike: made once for all who ask, since it names every machine."""

import hashlib
import time
from collections.abc import Callable

from potluck.meeting.host.changes import Changes
from potluck.meeting.wire import GateOrders, Orders

_PAUSE_S_A_MACHINE = 0.01


class SharedOrders:
    """The gates' orders and their members as JSON, kept until something has changed.

    A digest of orders has two parts, for the members and for all else. Who all else is news to hears it at once. Of new
    members a machine hears at most once in N / 100 seconds while N of them come: each time it hears of all of them.
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
        """Whom all gates let in, and for what."""
        if self._gate is None or self._made_at != self._changes.count:
            self._made_at, made = self._changes.count, self._make()
            if self._gate is None or made.members != self._gate.members:
                self._members_json = b"[" + b",".join(one.model_dump_json().encode() for one in made.members) + b"]"
                self._members_digest = hashlib.sha256(self._members_json).hexdigest()[:16]
            self._gate = made
        return self._gate

    def make_again(self) -> None:
        """Something may have changed that nobody was told of."""
        self._made_at = -1

    def sealed(self, orders: Orders) -> Orders:
        """Orders with their digest; their gate's part is this one."""
        rest = hashlib.sha256(_without_members(orders).encode()).hexdigest()[:16]
        return orders.model_copy(update={"digest": f"{rest}-{self._members_digest}"})

    def pause_s(self, machine: str, known: str, orders: Orders) -> float:
        """How long the machine that knows orders with that digest waits for these, if nothing more happens."""
        if known.partition("-")[0] != orders.digest.partition("-")[0]:
            return 0.0
        pause_s = _PAUSE_S_A_MACHINE * len(orders.gate.members)
        return self._told_at.get(machine, float("-inf")) + pause_s - self._clock()

    def encoded(self, machine: str, orders: Orders) -> bytes:
        """Sealed orders as JSON, for that machine, which is told of all members with it."""
        self._told_at[machine] = self._clock()
        return _without_members(orders).encode().replace(b'"members":[]', b'"members":' + self._members_json, 1)


def _without_members(orders: Orders) -> str:
    gate = orders.gate.model_copy(update={"members": []})
    return orders.model_copy(update={"gate": gate}).model_dump_json()
