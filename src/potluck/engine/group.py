"""The workers that train together, as one of them sees them."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from torch import Tensor, nn

from potluck.engine.position import Slice


class Group(Protocol):
    """What a step needs from the others: who takes which samples, summed gradients, one verdict."""

    @property
    def worker(self) -> int:
        """This worker's number in the run's files."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """The module whose backward exchanges gradients."""

    def begin(self, step: int, batch: int) -> Slice:
        """Agree on who is here; return this worker's part of the step's global batch."""

    def expect(self, step: int, batch: int) -> Slice:
        """The part that `begin` will return if nothing changes, for fetching ahead."""

    def accumulating(self) -> AbstractContextManager[None]:
        """Backward passes inside add to the gradients without an exchange."""

    def total(self, weight: float) -> float:
        """The sum of all workers' weights, once this step's gradients are summed."""

    def commit(self) -> bool:
        """Whether every worker came through, so that the step counts."""

    def part_of(self, num_samples: int) -> range:
        """This worker's part of an evaluation."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum of all workers' values."""


class Alone:
    """A run of one worker: every part is the whole, every verdict its own."""

    worker = 0

    def wrap(self, model: nn.Module) -> nn.Module:
        return model

    def begin(self, step: int, batch: int) -> Slice:
        return Slice(step, 0, batch)

    expect = begin

    def accumulating(self) -> AbstractContextManager[None]:
        return nullcontext()

    def total(self, weight: float) -> float:
        return weight

    def commit(self) -> bool:
        return True

    def part_of(self, num_samples: int) -> range:
        return range(num_samples)

    def sum(self, values: Tensor) -> Tensor:
        return values
