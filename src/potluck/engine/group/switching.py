"""Switches between the states of a worker's group: with others, alone for a while, or on the bench.

Each state is one class (`GroupState`) in one file, and names its own successor; `join_others` chooses the first.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from potluck.engine.compute.outer_step import OuterStep
from potluck.engine.group.connection import Connection
from potluck.engine.group.place import States
from potluck.engine.group.protocol import Announcement, Committed, GroupState, Total
from potluck.engine.group.replicated import ReplicatedGroup
from potluck.engine.group.round_view import RoundView
from potluck.engine.group.rounds import RoundsGroup
from potluck.engine.order.position import BatchSizes, Slice


class SwitchingGroup:
    """The Group of the training loop: forwards every call to the current GroupState, and switches it between steps."""

    waits = True

    def __init__(self, connection: Connection, first: GroupState) -> None:
        self._connection = connection
        self._state = first
        self._committed_by = first

    @property
    def writes(self) -> bool:
        return self._state.writes

    @property
    def is_benched(self) -> bool:
        return self._state.is_benched

    @property
    def committed(self) -> Committed:
        return self._committed_by.committed

    @property
    def round(self) -> RoundView:
        return self._state.round

    @property
    def quorum_id(self) -> int:
        return self._state.quorum_id

    def wrap(
        self,
        model: nn.Module,
        states: States,
        is_stopping: Callable[[], bool],
        *,
        is_several: bool = False,
        outer: OuterStep | None = None,
    ) -> nn.Module:
        return self._connection.wrap(model, states, is_stopping, is_several=is_several, outer=outer)

    def begin(self, step: int, order: BatchSizes) -> Slice:
        step = self._state.catch_up(step)
        self._state = self._state.successor()
        return self._state.begin(step, order)

    def expect(self, step: int, batch: int) -> Slice:
        return self._state.expect(step, batch)

    def exchange_in(self, *, this_pass: bool) -> None:
        self._state.exchange_in(this_pass=this_pass)

    def announce(self, own: Announcement) -> Slice:
        return self._state.announce(own)

    def total(self) -> Total:
        return self._state.total()

    def begin_change(self) -> None:
        self._state.begin_change()

    def commit(self) -> bool:
        self._committed_by = self._state
        committed = self._state.commit()
        self._state = self._state.successor()
        return committed

    def between_steps(self, state: dict[str, Any]) -> dict[str, Any]:
        return self._state.between_steps(state)

    def evaluation_range(self, num_samples: int) -> range:
        return self._state.evaluation_range(num_samples)

    def sum(self, values: Tensor) -> Tensor:
        return self._state.sum(values)

    def finish(self) -> None:
        self._state.finish()

    def close(self) -> None:
        self._state.close()
        self._connection.close()


def join_others(connection: Connection) -> SwitchingGroup:
    """One worker's group, which begins by training with all workers that share the lighthouse."""
    kind = RoundsGroup if connection.place.exchange.may_be_rounds else ReplicatedGroup
    return SwitchingGroup(connection, kind(connection))
