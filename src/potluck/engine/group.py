"""The workers that train together, as one of them sees them."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from potluck.engine.position import Slice


class Lost(Exception):  # noqa: N818  not an error of the user's
    """A peer was lost while numbers were added up."""


class Total(NamedTuple):
    """What all workers brought to a step."""

    weight: float
    loss_sum: float
    scale: float
    """The loss scale of fp16: that of the workers who brought samples, which is one."""


class Group(Protocol):
    """What a step needs from the others: who takes which samples, summed gradients, one verdict."""

    @property
    def writes(self) -> bool:
        """Whether this worker writes the checkpoints."""

    @property
    def formation(self) -> int:
        """Which forming of the group this is: a step's parts add up within one."""

    def wrap(
        self,
        model: nn.Module,
        capture: Callable[[], dict[str, Any]],
        restore: Callable[[dict[str, Any]], None],
        is_stopping: Callable[[], bool],
    ) -> nn.Module:
        """The module whose backward exchanges gradients; how this worker's state is read and replaced."""

    def begin(self, step: int, batch_of: Callable[[int], int]) -> Slice:
        """This worker's part of the step's global batch, or of another step's if the group is at that one.

        A worker that is behind gets an empty part of the others' step, and their state when it is committed.
        """

    def expect(self, step: int, batch: int) -> Slice:
        """The part that `begin` will return if nothing changes, for fetching ahead."""

    def exchange_in(self, *, this_pass: bool) -> None:
        """Whether the forward and backward pass that follow end with an exchange, or only add to the gradients."""

    def announce(self, weight: float, loss_sum: float, scale: float, *, is_last: bool) -> Slice:
        """The step's last backward pass follows: what its gradients weigh, its losses weighed so, its loss scale.

        `is_last`: this worker leaves after the step. Returns the part that counts: if the group has moved on since
        `begin`, an empty one of the step that it is at.
        """

    def total(self) -> Total:
        """The sums over all workers, once this step's gradients are summed."""

    def commit(self) -> bool:
        """Whether every worker came through, so that the step counts."""

    def part_of(self, num_samples: int) -> range:
        """This worker's part of an evaluation."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum of all workers' values; raises Lost."""

    def finish(self) -> None:
        """The last step is done: help those who are still behind."""

    def close(self) -> None:
        """Leave the others."""


class Alone:
    """A run of one worker: every part is the whole, every verdict its own."""

    writes = True
    formation = 0

    def __init__(self) -> None:
        self._total = Total(0.0, 0.0, 1.0)
        self._part = Slice(0, 0, 0)

    def wrap(
        self,
        model: nn.Module,
        capture: Callable[[], dict[str, Any]],  # noqa: ARG002
        restore: Callable[[dict[str, Any]], None],  # noqa: ARG002
        is_stopping: Callable[[], bool],  # noqa: ARG002
    ) -> nn.Module:
        return model

    def begin(self, step: int, batch_of: Callable[[int], int]) -> Slice:
        self._part = Slice(step, 0, batch_of(step))
        return self._part

    def expect(self, step: int, batch: int) -> Slice:
        return Slice(step, 0, batch)

    def exchange_in(self, *, this_pass: bool) -> None:
        """Nobody to exchange with."""

    def announce(self, weight: float, loss_sum: float, scale: float, *, is_last: bool) -> Slice:  # noqa: ARG002
        self._total = Total(weight, loss_sum, scale)
        return self._part

    def total(self) -> Total:
        return self._total

    def commit(self) -> bool:
        return True

    def part_of(self, num_samples: int) -> range:
        return range(num_samples)

    def sum(self, values: Tensor) -> Tensor:
        return values

    def finish(self) -> None:
        """Nobody to help."""

    def close(self) -> None:
        """Nobody to leave."""
