"""The description of a model from which Potluck builds it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import nn

from potluck.core.errors import WorkloadError, did_you_mean
from potluck.workloads.datasets.splits import Kind
from potluck.workloads.models.tasks import Task

Size = Callable[[int], nn.Module]
"""Builds one size of a model for a number of classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A family of models that differ in size."""

    reads: Kind
    task: Task
    sizes: Mapping[str, Size]  # smallest first
    default_size: str

    def build(self, size: str, num_classes: int) -> nn.Module:
        """A new model with random parameters, from torch's global generator."""
        if size not in self.sizes:
            raise WorkloadError(f"this model has no size {size!r}", fix=did_you_mean(size, self.sizes))
        return self.sizes[size](num_classes)
