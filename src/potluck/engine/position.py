"""Where training stands in the data: a function of the committed step alone."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from potluck.engine.seeding import mix


class Slice(NamedTuple):
    """Consecutive samples of one step's global batch: those from start up to stop."""

    step: int
    start: int
    stop: int

    @property
    def num_samples(self) -> int:
        return self.stop - self.start


@dataclass(slots=True)
class DataOrder:
    """Which samples each step owns: the epoch's permutation, cut into global batches; the last may be short."""

    num_samples: int
    global_batch: int
    seed: int
    _cached: tuple[int, Tensor] | None = field(default=None, repr=False)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_samples // self.global_batch)

    def epoch_of(self, step: int) -> int:
        """The epoch that the step belongs to, counted from 0."""
        return step // self.steps_per_epoch

    def batch_of(self, step: int) -> int:
        """How many samples the step's global batch has."""
        first = step % self.steps_per_epoch * self.global_batch
        return min(self.global_batch, self.num_samples - first)

    def indices(self, part: Slice) -> Tensor:
        """The dataset's indices of these samples."""
        first = part.step % self.steps_per_epoch * self.global_batch
        return self._permutation(self.epoch_of(part.step))[first + part.start : first + part.stop]

    def _permutation(self, epoch: int) -> Tensor:
        if self._cached is None or self._cached[0] != epoch:
            generator = torch.Generator().manual_seed(mix(self.seed, epoch))
            self._cached = (epoch, torch.randperm(self.num_samples, generator=generator))
        return self._cached[1]


def cut(part: Slice, cap: int | None) -> list[Slice]:
    """The part in as few pieces of at most `cap` samples as possible, as equal as possible."""
    pieces = 1 if cap is None else max(1, -(-part.num_samples // cap))
    size, larger = divmod(part.num_samples, pieces)
    result = []
    start = part.start
    for piece in range(pieces):
        stop = start + size + (piece < larger)
        result.append(Slice(part.step, start, stop))
        start = stop
    return result
