"""Steps of a worker that trains alone: no quorum, no all-reduce and no commit vote while a lease lasts."""

import time
from typing import Any

from potluck.engine.group.connection import Connection
from potluck.engine.group.lease import Lease
from potluck.engine.group.protocol import Announcement, GroupState
from potluck.engine.group.solo import SoloGroup
from potluck.engine.order.position import BatchSizes, Slice


class LeasedGroup(SoloGroup):
    """A worker alone, which others may join: peers may read its state, and `back` asks for a quorum after the lease."""

    waits = True

    def __init__(self, connection: Connection, lease: Lease, back: GroupState) -> None:
        super().__init__()
        self._connection = connection
        self._lease = lease
        self._back = back
        self._began_at = 0.0

    def catch_up(self, step: int) -> int:
        return step

    def successor(self) -> GroupState:
        return self if self._lease.is_valid else self._back

    def begin(self, step: int, order: BatchSizes) -> Slice:
        self.quorum_id = self._back.quorum_id
        self._connection.model.exchange.remember()
        self._connection.membership.lend()
        self._connection.told_step = step
        self._began_at = time.monotonic()
        return super().begin(step, order)

    def exchange_in(self, *, this_pass: bool) -> None:
        self._connection.model.exchange_in(this_pass=this_pass, is_alone=True)

    def announce(self, own: Announcement) -> Slice:
        return super().announce(own._replace(weight=own.weight or 1.0))

    def begin_change(self) -> None:
        self._connection.membership.begin_change()

    def commit(self) -> bool:
        now = time.monotonic()
        self._connection.membership.advance()
        self._connection.model.committed(self._part.step, self.quorum_id, [self._connection.place.name])
        self._connection.timeout.committed(now - self._began_at)
        self._connection.last_commit.note(now)
        return True

    def between_steps(self, state: dict[str, Any]) -> dict[str, Any]:
        return self._connection.model.between_steps(state)

    def finish(self) -> None:
        self._back.finish()

    def close(self) -> None:
        self._back.close()
