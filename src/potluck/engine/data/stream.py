"""Batches from an IterableDataset: every worker reads the stream from its start and keeps its own samples."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import Dataset, default_collate

from potluck.core.errors import DataError
from potluck.engine.data.fetching import Collate, Request
from potluck.engine.order.seeding import seed_host


class Stream(Dataset[Any]):
    """Batches of a stream, indexed by (epoch, positions in the stream).

    Training is exact if the dataset yields the same samples in the same order on every machine. Its random draws are
    seeded from (seed, epoch, position); `set_epoch(epoch)` is called before an epoch if the dataset has that method.
    """

    def __init__(self, dataset: Any, seed: int, collate: Collate | None, global_batch: int, num_samples: int) -> None:
        self._dataset = dataset
        self._seed = seed
        self._collate = collate or default_collate
        self._global_batch = global_batch
        self._num_samples = num_samples
        self._epoch = -1
        self._samples: Iterator[Any] = iter(())
        self._next = 0
        self._kept: dict[int, Any] = {}

    def __getitem__(self, request: Request) -> Any:
        epoch, positions = request
        wanted = [int(position) for position in positions]
        # A retry may ask for any part of the same global batch.
        batch_start = wanted[0] // self._global_batch * self._global_batch
        if epoch != self._epoch or (batch_start < self._next and batch_start not in self._kept):
            self._restart(epoch)
        self._kept = {position: sample for position, sample in self._kept.items() if position >= batch_start}
        while self._next <= wanted[-1]:
            sample = self._read()
            if self._next >= batch_start:
                self._kept[self._next] = sample
            self._next += 1
        return self._collate([self._kept[position] for position in wanted])

    def _restart(self, epoch: int) -> None:
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)
        seed_host(self._seed, epoch)
        self._epoch, self._next, self._kept = epoch, 0, {}
        self._samples = iter(self._dataset)

    def _read(self) -> Any:
        seed_host(self._seed, self._epoch, self._next)
        try:
            return next(self._samples)
        except StopIteration:
            raise DataError(
                f"the dataset ended after {self._next} samples of epoch {self._epoch + 1}; it was to have "
                f"{self._num_samples}",
                fix=f"pass run.loader(dataset, ..., num_samples={self._next}), the samples that an epoch really has",
            ) from None
