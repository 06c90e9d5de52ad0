"""Batches from a dataset: in this process, or ahead of time by DataLoader's worker processes."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset, default_collate

from potluck.engine.order.position import DataOrder, Slice
from potluck.engine.order.seeding import seed_host

Collate: TypeAlias = Callable[[list[Any]], Any]
Request: TypeAlias = tuple[int, Tensor | list[int]]  # epoch, indices


class Samples(Dataset[Any]):
    """Whole batches of a dataset, indexed by (epoch, indices).

    A TensorDataset, or a dataset with a method `potluck_batch(indices)`, is read once per batch. Any other dataset is
    read sample by sample, with the random generators seeded from (seed, epoch, index): random augmentation is then
    the same whichever worker reads the sample, and whenever.
    """

    def __init__(self, dataset: Dataset[Any], seed: int, collate: Collate | None) -> None:
        self._dataset = dataset
        self._seed = seed
        self._collate = collate
        self._whole = None if collate is not None else _whole_batches(dataset)

    def __getitem__(self, request: Request) -> Any:
        epoch, indices = request
        if self._whole is not None:
            return self._whole(torch.as_tensor(indices))
        samples = []
        for index in indices if isinstance(indices, list) else indices.tolist():
            seed_host(self._seed, epoch, index)
            samples.append(self._dataset[index])
        return (self._collate or default_collate)(samples)


def _whole_batches(dataset: Dataset[Any]) -> Callable[[Tensor], Any] | None:
    if type(dataset) is TensorDataset:
        return dataset.__getitem__  # indexing by a tensor gathers the whole batch
    whole: Callable[[Tensor], Any] | None = getattr(dataset, "potluck_batch", None)
    return whole


class Fetcher(Protocol):
    """Reads the loader's batches from a dataset."""

    def fetch(self, wanted: Slice) -> Any:
        """The batch of the slice's samples."""

    def forget(self) -> None:
        """Drop what was read ahead: the same slice now means other samples."""

    def close(self) -> None:
        """End worker processes."""


class FetchNow:
    """Reads a batch in this process when the loader asks for it."""

    def __init__(self, samples: Dataset[Any], order: DataOrder) -> None:
        self._samples = samples
        self._order = order

    def fetch(self, wanted: Slice) -> Any:
        return self._samples[self._order.epoch_of(wanted.step), self._order.indices(wanted)]

    def forget(self) -> None:
        """Nothing is read ahead."""

    def close(self) -> None:
        """Nothing is held."""


class FetchAhead:
    """Reads the slices that are expected next ahead of time, in DataLoader's worker processes.

    If the loader wants another slice than the expected one (a retry, a new plan, a resume), all batches read ahead are
    dropped, and reading restarts from the wanted slice.
    """

    def __init__(
        self,
        samples: Dataset[Any],
        order: DataOrder,
        *,
        num_workers: int,
        upcoming: Callable[[Slice], Iterator[Slice]],
        pin_memory: bool,
        worker_init: Callable[[int], None] | None = None,
    ) -> None:
        self._upcoming = upcoming
        self._requests = _Requests(order)
        self._loader: DataLoader[Any] = DataLoader(
            samples,
            batch_size=None,
            sampler=self._requests,
            collate_fn=_as_it_is,
            num_workers=num_workers,
            persistent_workers=True,
            pin_memory=pin_memory,
            worker_init_fn=worker_init,
        )
        self._batches: Iterator[Any] | None = None

    def fetch(self, wanted: Slice) -> Any:
        expected = self._requests.expected
        if self._batches is None or not expected or expected[0] != wanted:
            self._requests.restart(self._upcoming(wanted))
            self._batches = iter(self._loader)
        batch = next(self._batches)
        part = expected.popleft()
        assert part == wanted, f"read {part} instead of {wanted}"
        return batch

    def forget(self) -> None:
        self._batches = None

    def close(self) -> None:
        # DataLoader ends its workers when its iterator is collected.
        self._batches = None
        self._loader._iterator = None


class _Requests(Sampler[Request]):
    """A Sampler that turns the expected slices into requests, and remembers those that are being read."""

    def __init__(self, order: DataOrder) -> None:
        self._order = order
        self._slices: Iterator[Slice] = iter(())
        self.expected: deque[Slice] = deque()

    def restart(self, slices: Iterator[Slice]) -> None:
        self._slices = slices
        self.expected.clear()

    def __iter__(self) -> Iterator[Request]:
        for part in self._slices:
            self.expected.append(part)
            # A list: a tensor would travel to a worker process as shared memory.
            yield self._order.epoch_of(part.step), self._order.indices(part).tolist()


def _as_it_is(batch: Any) -> Any:
    return batch


def to_device(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor in it on the device."""
    match batch:
        case Tensor():
            return batch.to(device, non_blocking=True)
        case dict():
            return {key: to_device(value, device) for key, value in batch.items()}
        case tuple() if hasattr(batch, "_fields"):
            return type(batch)(*(to_device(value, device) for value in batch))
        case tuple() | list():
            return type(batch)(to_device(value, device) for value in batch)
    # A batch of another class, such as a tokenizer's, has its own `to`.
    return batch.to(device) if hasattr(batch, "to") else batch
