"""The gates' part of the orders, equal for all machines: made once for all polls, since it lists every machine.

A machine that knows an earlier list of members gets only those that have changed since.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Collection, Sequence

from potluck.meeting.host.changes import Changes
from potluck.meeting.wire import GateMember, GateOrders, MemberChanges, Orders

_PAUSE_S_A_MACHINE = 0.01
_GATHER_S_A_MACHINE, _MOST_GATHER_S = 0.0005, 0.25
_KNOWN_LISTS = 1000  # who knows none of the last so many lists gets all members


class MemberLists:
    """The members' list of now, and for each of the last lists what has changed since."""

    def __init__(self) -> None:
        self.digest = ""
        self._members: dict[str, GateMember] = {}
        self._pieces: dict[str, bytes] = {}
        """By member: its entry in the list, as JSON."""
        self._digests: dict[str, bytes] = {}
        """By member: the digest of its entry."""
        self._json = b""
        self._changed_in: dict[str, int] = {}
        """By member, also one that is gone: the number of the list that has the change."""
        self._numbers: dict[str, int] = {}
        """By digest, of the last lists."""

    def become(self, members: Sequence[GateMember]) -> None:
        """Take a new list."""
        before, self._members = self._members, {one.machine: one for one in members}
        number = max(self._numbers.values(), default=0) + 1
        changed = [name for name, one in self._members.items() if (old := before.get(name)) is not one and old != one]
        changed += before.keys() - self._members.keys()
        self._changed_in |= dict.fromkeys(changed, number)
        new = {name: self._members[name].model_dump_json().encode() for name in changed if name in self._members}
        self._pieces |= new
        self._digests |= {name: hashlib.sha256(piece).digest() for name, piece in new.items()}
        self._json = b""
        self.digest = hashlib.sha256(b"".join(self._digests[one.machine] for one in members)).hexdigest()[:16]
        self._numbers = {**dict(list(self._numbers.items())[1 - _KNOWN_LISTS :]), self.digest: number}

    @property
    def json(self) -> bytes:
        """The whole list; hundreds of members are not joined anew before somebody asks."""
        if not self._json:
            self._json = b"[" + b",".join(self._pieces[name] for name in self._members) + b"]"
        return self._json

    @property
    def names(self) -> Collection[str]:
        """The members of now."""
        return self._members.keys()

    def since(self, digest: str) -> MemberChanges | None:
        """What has changed since the list with this digest; None if that list is not known any more."""
        number = self._numbers.get(digest)
        if number is None:
            return None
        later = {name for name, changed_in in self._changed_in.items() if changed_in > number}
        return MemberChanges(
            changed=[member for name, member in self._members.items() if name in later],
            gone=sorted(later - self._members.keys()),
        )


class SharedOrders:
    """Caches the gates' orders, and their members as JSON, until something has changed.

    A digest of orders has two parts: one for the list of members, one for everything else. A change of anything else
    is sent within a quarter of a second. A change of members is sent to a machine at most once in N / 100 seconds for N
    members: while many join, each would else be told of every other one by itself.
    """

    def __init__(
        self, changes: Changes, make: Callable[[], GateOrders], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._changes = changes
        self._make = make
        self._clock = clock
        self._gate: GateOrders | None = None
        self._lists = MemberLists()
        self._made_at = -1
        self._told_at: dict[str, float] = {}

    def gate(self) -> GateOrders:
        """The gates' orders: the members, and the machines of each run."""
        if self._gate is None or self._made_at != self._changes.count:
            self._made_at, made = self._changes.count, self._make()
            if self._gate is None or made.members != self._gate.members:
                self._lists.become(made.members)
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
        return orders.model_copy(update={"digest": f"{rest}-{self._lists.digest}"})

    def pause_s(self, machine: str, known: str, orders: Orders) -> float:
        """How long to hold back orders that differ from the `known` digest only in members; 0 or less: send now."""
        if known.partition("-")[0] != orders.digest.partition("-")[0]:
            return 0.0
        pause_s = _PAUSE_S_A_MACHINE * len(orders.gate.members)
        return self._told_at.get(machine, float("-inf")) + pause_s - self._clock()

    async def wait(self, at_most_s: float) -> None:
        """Wait for the next change, and a moment longer with many machines: those that wait look at all anew."""
        until = self._clock() + at_most_s
        await self._changes.wait(at_most_s)
        pause_s = min(_GATHER_S_A_MACHINE * len(self._lists.names), _MOST_GATHER_S)
        await asyncio.sleep(max(0.0, min(pause_s, until - self._clock())))

    def encoded(self, machine: str, known: str, orders: Orders) -> bytes:
        """Sealed orders as JSON, with the members that are other than in the `known` orders, or else with all.

        Notes the time at which the machine gets them.
        """
        self._told_at[machine] = self._clock()
        changes = self._lists.since(known.partition("-")[2])
        if changes is not None:
            return _without_members(orders.model_copy(update={"member_changes": changes})).encode()
        return _without_members(orders).encode().replace(b'"members":[]', b'"members":' + self._lists.json, 1)


def _without_members(orders: Orders) -> str:
    gate = orders.gate.model_copy(update={"members": []})
    return orders.model_copy(update={"gate": gate}).model_dump_json()
