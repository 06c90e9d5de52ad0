"""The arguments of `run.loader`: a dataset with Potluck's or DataLoader's keywords, or a DataLoader itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    default_collate,
)

from potluck.core.errors import UsageError, did_you_mean
from potluck.core.words import counted
from potluck.engine.data.fetching import Collate
from potluck.engine.order.position import DataOrder
from potluck.engine.order.seeding import mix, seed_host

_SPEED_ONLY = frozenset(
    ("pin_memory", "pin_memory_device", "persistent_workers", "prefetch_factor", "timeout", "multiprocessing_context")
)
_TAKEN = ("batch_size", "shuffle", "sampler", "drop_last", "collate_fn", "worker_init_fn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A dataset, and how it is split into global batches."""

    dataset: Dataset[Any]
    global_batch: int
    num_samples: int
    shuffle: bool
    drop_last: bool
    sampler: Sampler[int] | None
    num_workers: int
    collate: Collate | None
    worker_init: Callable[[int], None] | None

    @property
    def is_stream(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    def order(self, seed: int) -> DataOrder:
        """The order of the samples, with the run's seed."""
        order = DataOrder(self.num_samples, self.global_batch, seed, shuffle=self.shuffle, drop_last=self.drop_last)
        if self.num_samples < 1 or self.global_batch < 1 or order.steps_per_epoch < 1:
            raise UsageError(
                f"{counted(self.num_samples, 'sample')} cannot be cut into global batches of {self.global_batch}",
                fix="give run.loader a dataset with samples and a global_batch of at least 1",
            )
        if self.sampler is not None:
            order.draw = _Drawing(self.sampler, seed, self.num_samples)
        return order


def read_as(
    source: Any,
    *,
    global_batch: int | None = None,
    num_workers: int | None = None,
    collate: Collate | None = None,
    num_samples: int | None = None,
    keywords: dict[str, Any],
) -> Reading:
    """The arguments of a `run.loader` call as a Reading; DataLoader's keywords keep their meaning."""
    _check(keywords)
    given = {name: value for name, value in keywords.items() if name in _TAKEN}
    if isinstance(source, DataLoader):
        if given:
            raise UsageError(
                f"run.loader got a DataLoader and also {', '.join(sorted(given))}",
                fix="set them in the DataLoader, or pass its dataset: run.loader(dataset, ...)",
            )
        given = _settings_of(source)
        num_workers = source.num_workers if num_workers is None else num_workers
        dataset = source.dataset
    else:
        dataset = source
    batch = _one_of("global_batch", global_batch, "batch_size", given.get("batch_size"), source)
    sampler = given.get("sampler")
    shuffle = given.get("shuffle")
    is_stream = isinstance(dataset, IterableDataset)
    if is_stream and (shuffle or sampler is not None):
        raise UsageError(
            "an IterableDataset is read in its own order: it cannot be shuffled or sampled",
            fix="leave shuffle and sampler out, and shuffle inside the dataset from a fixed seed",
        )
    return Reading(
        dataset=dataset,
        global_batch=batch,
        num_samples=_num_samples(dataset, sampler, num_samples),
        shuffle=not is_stream and (True if shuffle is None else bool(shuffle)),
        drop_last=bool(given.get("drop_last", False)),
        sampler=sampler,
        num_workers=num_workers or 0,
        collate=_collate(collate, given.get("collate_fn")),
        worker_init=given.get("worker_init_fn"),
    )


def dataset_and_collate(source: Any, collate: Collate | None) -> tuple[Dataset[Any], Collate | None]:
    """The dataset to evaluate on and its collate function; `source` is a dataset or a DataLoader."""
    if isinstance(source, DataLoader):
        source, collate = source.dataset, _collate(collate, source.collate_fn)
    if not hasattr(source, "__len__"):
        raise UsageError(
            f"run.evaluate splits a dataset by its length, and {type(source).__name__} has none",
            fix="evaluate on a dataset with __len__ and __getitem__; list(dataset) makes one of a stream",
        )
    return source, collate


def _settings_of(loader: "DataLoader[Any]") -> dict[str, Any]:
    """A DataLoader's settings, as keywords of run.loader."""
    if loader.batch_size is None or type(loader.batch_sampler) not in (BatchSampler, type(None)):
        raise UsageError(
            "the DataLoader makes its batches itself (batch_size=None or a batch_sampler): Potluck cannot split them",
            fix="give the DataLoader a batch_size, the samples of a step over all machines, or use run.loader(dataset)",
        )
    settings = {
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "collate_fn": loader.collate_fn,
        "worker_init_fn": loader.worker_init_fn,
    }
    if isinstance(loader.dataset, IterableDataset):
        return settings
    sampler = loader.sampler
    if isinstance(sampler, DistributedSampler):
        raise UsageError(
            "the DataLoader has a DistributedSampler: its samples would be split twice, and its batch is one machine's",
            fix="leave the DistributedSampler out and set batch_size to the samples of a step over all machines",
        )
    if type(sampler) is SequentialSampler:
        return settings | {"shuffle": False}
    if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(loader.dataset):  # type: ignore[arg-type]
        return settings | {"shuffle": True}
    return settings | {"sampler": sampler}


def _num_samples(dataset: Any, sampler: Any, declared: int | None) -> int:
    counted = sampler if sampler is not None else dataset
    if hasattr(counted, "__len__"):
        num_samples = len(counted)
        if declared is not None and not isinstance(dataset, IterableDataset) and declared != num_samples:
            raise UsageError(
                f"num_samples is {declared}, but the dataset has {num_samples} samples",
                fix="leave num_samples out; for a part of the data use torch.utils.data.Subset",
            )
        return num_samples if declared is None else declared
    if declared is not None:
        return declared
    if isinstance(dataset, IterableDataset) or hasattr(dataset, "__iter__"):
        raise UsageError(
            f"{type(dataset).__name__} does not say how many samples an epoch has, so steps cannot be split or resumed",
            fix="pass run.loader(dataset, ..., num_samples=N), or give the dataset a __len__",
        )
    raise UsageError(
        f"run.loader cannot read a {type(dataset).__name__}",
        fix="give it a dataset with __len__ and __getitem__, an IterableDataset, or a DataLoader",
    )


def _one_of(name: str, value: int | None, other_name: str, other: int | None, source: Any) -> int:
    if value is not None and other is not None and value != other and not isinstance(source, DataLoader):
        raise UsageError(
            f"run.loader got {name}={value} and {other_name}={other}, which mean the same",
            fix=f"keep {name}: the samples of a step over all machines",
        )
    chosen = other if value is None else value
    if chosen is None:
        raise UsageError(
            "run.loader does not know how many samples a step has",
            fix="pass global_batch=..., the samples of a step over all machines",
        )
    return chosen


def _collate(own: Collate | None, torchs: Collate | None) -> Collate | None:
    chosen = own if own is not None else torchs
    return None if chosen is default_collate else chosen


def _check(keywords: dict[str, Any]) -> None:
    if keywords.get("generator") is not None:
        raise UsageError(
            "run.loader draws the order of the data from the run's seed: it takes no generator",
            fix="leave generator out, and set the seed in potluck.start(seed=...)",
        )
    if keywords.get("batch_sampler") is not None:
        raise UsageError(
            "Potluck splits batches over machines itself: it takes no batch_sampler",
            fix="pass global_batch=... and, to choose samples, sampler=...",
        )
    known = {*_TAKEN, *_SPEED_ONLY, "generator", "batch_sampler", "in_order"}
    for name in keywords:
        if name not in known:
            ours = ("global_batch", "num_workers", "collate", "num_samples")
            raise UsageError(f"run.loader has no argument {name!r}", fix=did_you_mean(name, {*known, *ours}))


class _Drawing:
    """Draws an epoch's order from the script's sampler, the same on every worker and after a resume."""

    def __init__(self, sampler: Sampler[int], seed: int, num_samples: int) -> None:
        self._sampler = sampler
        self._seed = seed
        self._num_samples = num_samples

    def __call__(self, epoch: int) -> Tensor:
        before = torch.get_rng_state()
        seed_host(self._seed, epoch)
        generator = getattr(self._sampler, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(mix(self._seed, epoch))
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        indices = torch.tensor([int(index) for index in self._sampler])
        torch.set_rng_state(before)
        if len(indices) != self._num_samples:
            raise UsageError(
                f"the sampler drew {len(indices)} samples in epoch {epoch}, but its length is {self._num_samples}",
                fix="let the sampler draw as many samples in every epoch as its __len__ says",
            )
        return indices
