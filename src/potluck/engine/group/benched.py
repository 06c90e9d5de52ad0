"""A worker on the bench: it copies the others' state, and now and then times a probe step that never counts."""

from typing import Any

from potluck.engine.group.bench import Bench
from potluck.engine.group.connection import Connection
from potluck.engine.group.protocol import Announcement, GroupState
from potluck.engine.group.roster import Roster
from potluck.engine.group.solo import SoloGroup
from potluck.engine.order.position import BatchSizes, Slice
from potluck.measuring.line_fit import Timed
from potluck.planning.replanning.returning import FasterWith


class BenchedGroup(SoloGroup):
    """A worker on a benched machine, because steps are shorter without it; `back` is the GroupState to return to."""

    writes = False
    is_benched = True
    waits = True

    def __init__(self, connection: Connection, bench: Bench, back: GroupState) -> None:
        super().__init__()
        self.quorum_id = back.quorum_id
        self._connection = connection
        self._bench = bench
        self._back = back
        self._is_over = False
        connection.membership.leave()

    def catch_up(self, step: int) -> int:
        """Wait for the next probe step and take the others' newest state; take part again if no other is left."""
        connection, bench = self._connection, self._bench
        bench.wait(connection.is_stopping)
        state = None if connection.is_stopping() else bench.newest
        if state is not None:
            connection.model.heal(state)
            step = int(state["step"])
        if bench.is_left_to_me(connection.balance.last_step) and not connection.is_stopping():
            self._stand_up(step, None)
        return step

    def successor(self) -> GroupState:
        return self._back if self._is_over else self

    def begin(self, step: int, order: BatchSizes) -> Slice:
        self._bench.begin()
        self._part = Slice(step, 0, min(self._bench.num_samples, order.batch_of(step)))
        return self._part

    def expect(self, step: int, batch: int) -> Slice:  # noqa: ARG002
        """An empty share: the samples of a probe step are read when it begins."""
        return Slice(step, 0, 0)

    def exchange_in(self, *, this_pass: bool) -> None:
        self._connection.model.exchange_in(this_pass=this_pass, is_alone=True)

    def announce(self, own: Announcement) -> Slice:
        return super().announce(own._replace(weight=own.weight or 1.0))

    def commit(self) -> bool:
        """Discard what the probe step computed; its time may bring the machine back."""
        connection, bench, part = self._connection, self._bench, self._part
        connection.model.exchange.settle(committed=False)
        if bench.is_over(connection.balance.last_step) or connection.is_stopping():
            return False
        timed = Timed(part.num_samples, bench.seconds())
        gain = connection.balance.probed(connection.place.name, timed, part.step, bench.step_s, bench.copy_s)
        if gain is not None:
            self._stand_up(part.step, gain)
        return False

    def between_steps(self, state: dict[str, Any]) -> dict[str, Any]:
        return self._connection.model.between_steps(state)

    def close(self) -> None:
        self._bench.close()
        self._connection.balance.keep()

    def _stand_up(self, step: int, gain: FasterWith | None) -> None:
        """Take part again, with this worker's state: in the new group, members that are behind are healed."""
        self._bench.close()
        self._connection.balance.returned(step, gain)
        self._connection.enlist()
        self._is_over = True


def sit_down(connection: Connection, roster: Roster, num_samples: int, back: GroupState) -> BenchedGroup:
    """Leave the ring. A probe step has as many samples as this worker's last share."""
    balance = connection.balance
    peers = [member.state_address for member in roster.members if member.machine not in balance.replanner.benched]
    membership = connection.membership
    bench = Bench(
        peers,
        membership.fetch,
        max(1, num_samples),
        stop_following=membership.stop_following,
        is_heir=balance.is_heir,
    )
    return BenchedGroup(connection, bench, back)
