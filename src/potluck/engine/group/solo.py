"""The Group of a run with one worker: no lighthouse, no all-reduce, no commit vote."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from potluck.engine.compute.outer_step import OuterStep
from potluck.engine.group.place import States
from potluck.engine.group.protocol import Announcement, Committed, Total
from potluck.engine.group.round_view import NO_ROUND, RoundView
from potluck.engine.order.position import BatchSizes, Slice


class SoloGroup:
    """A group of one worker: its share is the whole batch, and every step is committed."""

    writes = True
    is_benched = False
    waits = False
    quorum_id: int = 0
    committed = Committed()
    round: RoundView = NO_ROUND

    def __init__(self) -> None:
        self._total = Total(0.0, 0.0, 1.0)
        self._part = Slice(0, 0, 0)

    def wrap(
        self,
        model: nn.Module,
        states: States,  # noqa: ARG002
        is_stopping: Callable[[], bool],  # noqa: ARG002
        *,
        is_several: bool = False,  # noqa: ARG002
        outer: OuterStep | None = None,  # noqa: ARG002
    ) -> nn.Module:
        return model

    def begin(self, step: int, order: BatchSizes) -> Slice:
        self._part = Slice(step, 0, order.batch_of(step))
        return self._part

    def expect(self, step: int, batch: int) -> Slice:
        return Slice(step, 0, batch)

    def exchange_in(self, *, this_pass: bool) -> None:
        """Nothing to do: there is no peer."""

    def announce(self, own: Announcement) -> Slice:
        self._total = Total(own.weight, own.loss_sum, own.scale, own.left_out)
        return self._part

    def total(self) -> Total:
        return self._total

    def begin_change(self) -> None:
        """Nothing to do: no peer reads the state."""

    def commit(self) -> bool:
        return True

    def between_steps(self, state: dict[str, Any]) -> dict[str, Any]:
        return state

    def evaluation_range(self, num_samples: int) -> range:
        return range(num_samples)

    def sum(self, values: Tensor) -> Tensor:
        return values

    def finish(self) -> None:
        """Nothing to do: no peer waits for the state."""

    def close(self) -> None:
        """Nothing to do: there is no peer."""
