"""Exact means over a dataset, independent of the batch size and of the split over workers."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from potluck.core.errors import UsageError
from potluck.engine.data.fetching import Collate, Samples, to_device
from potluck.engine.group.protocol import Group, Lost
from potluck.measuring.memory import is_out_of_memory

Measure: TypeAlias = Callable[..., Mapping[str, Tensor]]


def evaluate(
    dataset: Dataset[Any],
    measure: Measure,
    *,
    group: Group,
    device: torch.device,
    batch: int,
    seed: int,
    collate: Collate | None,
) -> dict[str, float]:
    """The mean of every value that `measure` returns for the dataset's samples.

    Sums and counts are added over batches and workers in float64, then divided: no padding, no mean of means.
    """
    samples = Samples(dataset, seed, collate)
    num_samples = len(dataset)  # type: ignore[arg-type]
    try:
        totals = _add_up(samples, measure, group.evaluation_range(num_samples), device, batch)
        if not totals and num_samples:  # a worker without samples needs the names too, to sum equal shapes
            totals = {name: [0.0, 0.0] for name in _add_up(samples, measure, range(1), device, 1)}
        names = sorted(totals)
        sums = group.sum(torch.tensor([totals[name] for name in names], dtype=torch.float64))
    except Lost:
        # The lost worker's samples are missing, so every other worker evaluates the whole dataset by itself.
        totals = _add_up(samples, measure, range(num_samples), device, batch)
        names = sorted(totals)
        sums = torch.tensor([totals[name] for name in names], dtype=torch.float64)
    return {name: (total / count).item() for name, (total, count) in zip(names, sums, strict=True)}


@contextmanager
def evaluation_mode(models: Iterable[nn.Module]) -> Iterator[None]:
    """Inside, all modules are in evaluation mode, without gradients; afterwards each has its earlier mode again."""
    modules = [module for model in models for module in model.modules()]
    were_training = [module.training for module in modules]
    for module in modules:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module, was_training in zip(modules, were_training, strict=True):
            module.training = was_training


def _add_up(
    samples: Samples, measure: Measure, mine: range, device: torch.device, batch: int
) -> dict[str, list[float]]:
    totals: dict[str, list[float]] = {}
    start = mine.start
    while start < mine.stop:
        indices = list(range(start, min(start + batch, mine.stop)))
        try:
            values = measure(*arguments(to_device(samples[0, indices], device)))
            found = {name: _sum_and_count(name, value) for name, value in values.items()}
        except Exception as error:
            if len(indices) == 1 or not is_out_of_memory(error):
                raise
            batch = len(indices) // 2  # the sums are the same for any batch
            continue
        for name, numbers in found.items():
            total = totals.setdefault(name, [0.0, 0.0])
            for index, number in enumerate(numbers):
                total[index] += number
        start += len(indices)
    return totals


def arguments(batch: Any) -> tuple[Any, ...]:
    """A batch as the arguments of a function: a tuple or list is unpacked."""
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


def _sum_and_count(name: str, value: Tensor) -> tuple[float, int]:
    if value.dim() == 0:
        raise UsageError(
            f"the measure {name!r} is one number for a whole batch; a mean of means is not exact",
            fix="return one value a sample, for example cross_entropy(output, targets, reduction='none')",
        )
    return value.cpu().sum(dtype=torch.float64).item(), value.numel()  # not every accelerator has float64
