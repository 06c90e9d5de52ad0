"""A Strategy for Lightning's Fabric: a loop of your own on all machines of a run.

from potluck.integrations.fabric import PotluckFabricStrategy

fabric = Fabric(accelerator="cpu", devices=1, strategy=PotluckFabricStrategy())
model, optimizer = fabric.setup(model, optimizer)
loader = fabric.setup_dataloaders(loader)
for epoch in fabric.strategy.epochs(3):
    for inputs, targets in loader:
        ...

The loader's batch_size is the samples of a step over all machines.
"""

from collections.abc import Iterator
from typing import Any

import torch
from lightning.fabric.plugins.precision import Precision
from lightning.fabric.strategies.single_device import SingleDeviceStrategy
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from potluck.core.environment import hide_ranks, read_launch
from potluck.core.errors import UsageError
from potluck.engine.compute.device import choose_device
from potluck.engine.run import Run
from potluck.engine.start import start
from potluck.integrations.precisions import as_mixed_precision

hide_ranks()  # Lightning would connect to the other workers itself


class PotluckFabricStrategy(SingleDeviceStrategy):
    """Trains on all machines of a run; for Fabric it is one process. `options` are those of `potluck.start`."""

    def __init__(self, **options: Any) -> None:
        launch = read_launch()
        super().__init__(choose_device(options.get("device"), launch.local_rank, launch.device))
        self._options = options
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        """The run, which begins with `fabric.setup`."""
        if self._run is None:
            precision = as_mixed_precision(str(self.precision.precision))
            self._run = start(**{"mixed_precision": precision, **self._options})
            self._precision = Precision()  # the run casts and scales itself
        return self._run

    def epochs(self, num_epochs: int, *, max_steps: int | None = None) -> Iterator[int]:
        """The epochs to train: those that are left in a resumed run, or on a machine that joins."""
        return self.run.epochs(num_epochs, max_steps=max_steps)

    @property
    def is_global_zero(self) -> bool:
        return self._run is None or self._run.writes

    def setup_module_and_optimizers(
        self, module: torch.nn.Module, optimizers: list[Optimizer], scheduler: Any = None
    ) -> tuple[torch.nn.Module, list[Optimizer], Any]:
        prepared = self.run.prepare(module)
        steppers = [self.run.prepare(optimizer) for optimizer in optimizers]
        return prepared, steppers, None if scheduler is None else self.run.prepare(scheduler)

    def setup_module(self, module: torch.nn.Module) -> torch.nn.Module:
        prepared: torch.nn.Module = self.run.prepare(module)
        return prepared

    def setup_optimizer(self, optimizer: Optimizer) -> Optimizer:
        prepared: Optimizer = self.run.prepare(optimizer)
        return prepared

    def process_dataloader(self, dataloader: "DataLoader[Any]") -> Any:
        """The first DataLoader is split over the machines; evaluate others with `fabric.strategy.run.evaluate`."""
        return self.run.loader(dataloader)

    def backward(self, tensor: Tensor, module: torch.nn.Module | None, *_: Any, **keywords: Any) -> None:  # noqa: ARG002
        """`fabric.backward(loss, count=...)`: count is what the loss is a mean over, if that is not samples."""
        self.run.backward(tensor, count=keywords.get("count"))

    def optimizer_step(self, optimizer: Any, **keywords: Any) -> Any:
        return optimizer.step(**keywords)

    def clip_gradients_norm(self, module: Any, optimizer: Any, max_norm: Any, *_: Any, **__: Any) -> Any:  # noqa: ARG002
        return self.run.clip_gradients(float(max_norm))

    def clip_gradients_value(self, *_: Any, **__: Any) -> None:
        raise UsageError("Potluck clips gradients by their norm", fix="use fabric.clip_gradients(..., max_norm=...)")
