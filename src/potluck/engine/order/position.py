"""The position in the data, as a function of the committed step alone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from potluck.engine.order.seeding import mix


class Slice(NamedTuple):
    """Consecutive samples of one step's global batch: from `start` up to, not including, `stop`.

    In a round, positions go on over the batches of the steps that follow: a round's samples are one long batch.
    """

    step: int
    start: int
    stop: int

    @property
    def num_samples(self) -> int:
        return self.stop - self.start


class BatchSizes(Protocol):
    """How many samples the steps of a run have."""

    @property
    def global_batch(self) -> int:
        """Samples of every step, except the last of an epoch."""

    def batch_of(self, step: int) -> int:
        """How many samples the step's global batch has."""

    def rest_of_epoch(self, step: int) -> int:
        """How many steps the step's epoch still has, this one included."""


@dataclass(slots=True)
class DataOrder:
    """Which samples belong to each step: an epoch's sample order, split into global batches; the last may be short."""

    num_samples: int
    global_batch: int
    seed: int
    shuffle: bool = True
    drop_last: bool = False  # leave out a short last batch
    draw: Callable[[int], Tensor] | None = None  # the indices of an epoch, if the script has a sampler
    left_out: int = 0  # batches skipped so far, because the script left the loader's loop early
    _cached: tuple[int, Tensor] | None = field(default=None, repr=False)

    @property
    def steps_per_epoch(self) -> int:
        return self.num_samples // self.global_batch if self.drop_last else -(-self.num_samples // self.global_batch)

    def epoch_of(self, step: int) -> int:
        """The step's epoch, counted from 0; not valid for epochs before one that the script left early."""
        return (step + self.left_out) // self.steps_per_epoch

    def begins_epoch(self, step: int) -> bool:
        """Whether the step is the first of its epoch."""
        return (step + self.left_out) % self.steps_per_epoch == 0

    def leave_epoch(self, step: int) -> int:
        """Make the step the first of the next epoch; return how many batches are skipped for that."""
        rest = -(step + self.left_out) % self.steps_per_epoch
        self.left_out += rest
        return rest

    def rest_of_epoch(self, step: int) -> int:
        """How many steps the step's epoch still has, this one included."""
        return self.steps_per_epoch - (step + self.left_out) % self.steps_per_epoch

    def batch_of(self, step: int) -> int:
        """How many samples the step's global batch has."""
        return min(self.global_batch, self.num_samples - self._first(step))

    def indices(self, part: Slice) -> Tensor:
        """The dataset's indices of the slice's samples."""
        first = self._first(part.step)
        return self._order(self.epoch_of(part.step))[first + part.start : first + part.stop]

    def _first(self, step: int) -> int:
        return (step + self.left_out) % self.steps_per_epoch * self.global_batch

    def _order(self, epoch: int) -> Tensor:
        if self._cached is None or self._cached[0] != epoch:
            self._cached = (epoch, self._make_order(epoch))
        return self._cached[1]

    def _make_order(self, epoch: int) -> Tensor:
        if self.draw is not None:
            return self.draw(epoch)
        if not self.shuffle:
            return torch.arange(self.num_samples)
        return torch.randperm(self.num_samples, generator=torch.Generator().manual_seed(mix(self.seed, epoch)))


def split_into_micro_batches(part: Slice, cap: int | None) -> list[Slice]:
    """The slice as the fewest micro-batches of at most `cap` samples; their sizes differ by at most one sample."""
    num_micro_batches = 1 if cap is None else max(1, -(-part.num_samples // cap))
    size, num_larger = divmod(part.num_samples, num_micro_batches)
    micro_batches = []
    start = part.start
    for index in range(num_micro_batches):
        stop = start + size + (index < num_larger)
        micro_batches.append(Slice(part.step, start, stop))
        start = stop
    return micro_batches
