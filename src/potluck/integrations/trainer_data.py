"""The data of a Hugging Face Trainer, in the terms of `run.loader` and `run.evaluate`."""

import itertools
from collections.abc import Iterator, Sized
from typing import Any, cast

from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, SequentialSampler

from potluck.core.errors import UsageError
from potluck.engine.data.fetching import Collate


def loader_arguments(loader: "DataLoader[Any]", accumulation: int, max_steps: int) -> dict[str, Any]:
    """Arguments of `run.loader` for the DataLoader that the Trainer made for one process.

    The samples of a step are those of `accumulation` batches, in the order in which one process would draw them.
    """
    batch = batch_of(loader)
    if batch is None:
        raise UsageError(
            "the Trainer's DataLoader makes its batches itself: Potluck cannot split them over machines",
            fix="leave out train_sampling_strategy='batch_rebalance' and batch samplers of your own",
        )
    arguments: dict[str, Any] = {
        "dataset": loader.dataset,
        "global_batch": batch * accumulation,
        "num_workers": loader.num_workers,
        "collate": loader.collate_fn,
    }
    if isinstance(loader.dataset, IterableDataset):
        if hasattr(loader.dataset, "__len__"):
            return arguments
        length = max_steps * arguments["global_batch"]
        return {**arguments, "dataset": Repeated(loader.dataset), "num_samples": length}
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    length = len(cast(Sized, sampler))
    if getattr(loader.batch_sampler, "drop_last", False) and length % batch:
        return {**arguments, "sampler": FirstSamples(sampler, length - length % batch)}
    return {**arguments, "shuffle": False} if type(sampler) is SequentialSampler else {**arguments, "sampler": sampler}


class Repeated(IterableDataset[Any]):
    """A stream that begins again when it ends, as trainers read one until they have made all their steps."""

    def __init__(self, stream: IterableDataset[Any]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[Any]:
        for epoch in itertools.count():
            if hasattr(self._stream, "set_epoch"):  # as of Hugging Face's datasets, which shuffle by it
                self._stream.set_epoch(epoch)
            is_empty = True
            for sample in self._stream:
                is_empty = False
                yield sample
            if is_empty:
                return


def batch_of(loader: "DataLoader[Any]") -> int | None:
    """The samples of a batch; None if the loader's batches have no fixed size."""
    if type(loader.batch_sampler) is BatchSampler:  # Accelerate gives its DataLoader this, and no batch_size
        return loader.batch_sampler.batch_size
    return loader.batch_size


class FirstSamples(Sampler[int]):
    """The first samples that another sampler draws in an epoch, without an incomplete last batch."""

    def __init__(self, sampler: Any, length: int) -> None:
        self._sampler = sampler
        self._length = length

    @property
    def generator(self) -> Any:
        return getattr(self._sampler, "generator", None)

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._sampler)[: self._length])


class Batches(Dataset[Any]):
    """A DataLoader's batches with their sizes, as the samples of a dataset: `run.evaluate` shares out these."""

    def __init__(self, loader: "DataLoader[Any]") -> None:
        self._dataset: Any = loader.dataset
        self._collate: Collate = loader.collate_fn
        self._indices = [list(batch) for batch in cast(Any, loader.batch_sampler)]

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        indices = self._indices[index]
        return self._collate([self._dataset[i] for i in indices]), len(indices)


def has_fixed_batches(loader: "DataLoader[Any]") -> bool:
    """Whether every machine's loader has the same batches in the same order."""
    if isinstance(loader.dataset, IterableDataset) or type(loader.batch_sampler) is not BatchSampler:
        return False
    sampler = loader.batch_sampler.sampler
    return type(sampler) is SequentialSampler or getattr(sampler, "generator", None) is not None


def only(batches: list[Any]) -> Any:
    """The batch in a list of one."""
    (batch,) = batches
    return batch
