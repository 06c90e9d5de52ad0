"""A Strategy for Lightning's Trainer: the module trains on all machines of a run.

from potluck.integrations.lightning import PotluckStrategy

trainer = Trainer(strategy=PotluckStrategy(), max_epochs=3)

A step has the samples that it has on one machine: the DataLoader's batch_size times accumulate_grad_batches. They are
split over the machines, and cut into micro-batches where a share does not fit into memory.
"""

from collections.abc import Callable, Generator, Iterator
from functools import cached_property
from typing import Any, cast

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor
from torch.optim import Optimizer

from potluck.core.environment import hide_ranks, read_launch
from potluck.core.errors import UsageError
from potluck.engine.compute.device import choose_device
from potluck.engine.data.loader import SharedLoader
from potluck.engine.prepared import PreparedScheduler
from potluck.engine.run import Run
from potluck.engine.start import start
from potluck.integrations.precisions import as_mixed_precision
from potluck.integrations.trainer_data import loader_arguments

hide_ranks()  # Lightning would connect to the other workers itself

_MANY_EPOCHS = 1_000_000_000


class PotluckStrategy(Strategy):
    """Trains on all machines of a run; evaluates on each machine. `options` are those of `potluck.start`.

    `count`: how many elements the loss of a batch is a mean over, if these are not samples but tokens or pixels.
    What `training_step` logs is of this machine's samples; `trainer.strategy.run.loss` is of all machines.
    """

    strategy_name = "potluck"

    def __init__(self, *, count: Callable[[Any], float | Tensor] | None = None, **options: Any) -> None:
        super().__init__()
        self.global_rank, self.local_rank, self.world_size = 0, 0, 1  # for Lightning this is one process
        self._count = count
        self._options = options
        self._run: Run | None = None
        self._steps: _Steps | None = None

    @property
    def run(self) -> Run:
        """The run, which begins with `trainer.fit`."""
        if self._run is None:
            raise UsageError("there is no run before trainer.fit", fix="read trainer.strategy.run in or after fit")
        return self._run

    @cached_property
    def root_device(self) -> torch.device:
        launch = read_launch()
        return choose_device(self._options.get("device"), launch.local_rank, launch.device)

    @property
    def is_global_zero(self) -> bool:
        return self._run is None or self._run.writes

    def model_to_device(self) -> None:
        cast(LightningModule, self.model).to(self.root_device)

    def setup(self, trainer: Trainer) -> None:
        """Start the run, and hand it the module, its optimizer and its schedules."""
        if trainer.state.fn != TrainerFn.FITTING:
            super().setup(trainer)
            return
        module = cast(LightningModule, self.lightning_module)
        precision = _refuse(trainer, module)
        if self._run is None:
            # Trials would call the module, which has a forward pass only where Lightning puts one in for training_step.
            self._run = start(**{"mixed_precision": precision, "tuning": False, **self._options})
        super().setup(trainer)
        if len(self.optimizers) != 1:
            raise UsageError(
                f"configure_optimizers returned {len(self.optimizers)} optimizers: Lightning's own loop steps one",
                fix="use one optimizer with several parameter groups",
            )
        self.model = self._run.prepare(module)
        if self._run.step and trainer.ckpt_path:
            raise UsageError(
                f"the run goes on from its own checkpoint after step {self._run.step}, and fit has a ckpt_path too",
                fix="leave ckpt_path out, or start a new run",
            )
        self.optimizers = [self._run.prepare(optimizer) for optimizer in self.optimizers]
        self._run.prepare(_Stopping(trainer))
        for config in self.lr_scheduler_configs:
            if config.reduce_on_plateau:
                raise UsageError(
                    "ReduceLROnPlateau follows numbers that differ from machine to machine",
                    fix="use a schedule of steps or epochs",
                )
            prepared: PreparedScheduler = self._run.prepare(config.scheduler)
            assert prepared.inner is config.scheduler
        if isinstance(self.precision_plugin, MixedPrecision):
            self.precision_plugin.scaler = cast(Any, self._run.scaler)  # Lightning saves it in its checkpoints
        cast(Any, rank_zero_only).rank = 0 if self._run.writes else 1

    def process_dataloader(self, dataloader: object) -> object:
        """The training data is split over the machines; what is evaluated stays as it is."""
        trainer = cast(LightningModule, self.lightning_module).trainer
        if not trainer.training or self._steps is not None:
            return dataloader
        arguments = loader_arguments(cast(Any, dataloader), trainer.accumulate_grad_batches, max(0, trainer.max_steps))
        if arguments.get("num_samples") == 0:
            raise UsageError("the training data has no length, and the Trainer no max_steps", fix="set max_steps")
        trainer.accumulate_grad_batches = 1  # the run's step is all of them
        shared = self.run.loader(**arguments)
        self._steps = _Steps(self.run, shared, trainer)
        return self._steps

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        assert self._steps is not None
        module = cast(LightningModule, self.lightning_module)
        batch = self.batch_to_device(module._on_before_batch_transfer(self._steps.batch))
        return super().training_step(batch, *args[1:], **kwargs)

    def backward(self, closure_loss: Tensor, *_: Any, **__: Any) -> Tensor:
        assert self._steps is not None
        module = cast(LightningModule, self.lightning_module)
        # The hooks of Lightning's backward, without the loss scale of a plugin: the run has its own.
        closure_loss = Precision.pre_backward(self.precision_plugin, closure_loss, module)
        self.run.backward(closure_loss, count=None if self._count is None else self._count(self._steps.batch))
        return Precision.post_backward(self.precision_plugin, closure_loss, module)

    def optimizer_step(self, optimizer: Optimizer, closure: Callable[[], Any], *_: Any, **__: Any) -> Any:
        """All micro-batches of a step, and all of it again if a machine is lost in it."""
        assert self._steps is not None
        module = cast(LightningModule, self.lightning_module)
        while True:
            loss = closure()
            if self.run.has_gradients:
                self.precision_plugin._after_closure(module, optimizer)
                before = self.run.step
                optimizer.step()
                if self.run.step != before:
                    self._steps.count_step()
                    return loss
            if not self._steps.advance():
                return loss

    def reduce(self, tensor: Any, *_: Any, **__: Any) -> Any:
        return tensor

    def all_gather(self, tensor: Tensor, *_: Any, **__: Any) -> Tensor:
        return tensor

    def barrier(self, *_: Any, **__: Any) -> None:
        """The machines meet in every step."""

    def broadcast(self, obj: Any, src: int = 0) -> Any:  # noqa: ARG002
        return obj

    def on_train_end(self) -> None:
        if self._steps is not None:
            self._steps.end()


class _Steps:
    """The run's loader as Lightning reads it: one batch for each step, in each epoch of the run."""

    def __init__(self, run: Run, loader: SharedLoader, trainer: Trainer) -> None:
        self.batch: Any = None
        self.dataset = loader.dataset
        self._run = run
        self._loader = loader
        self._trainer = trainer
        self._epochs: Iterator[int] | None = None
        self._batches: Generator[Any, None, None] | None = None

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        if len(cast(Any, self._trainer.fit_loop)._combined_loader.flattened) > 1:
            raise UsageError("there are several training DataLoaders", fix="put the data into one dataset")
        epoch = self._next_epoch()
        if epoch is None:
            self._trainer.should_stop = True  # the run has ended, on machines that this one has not followed
            return
        _set_epoch(self._trainer, epoch)
        self._batches = cast(Generator[Any, None, None], iter(self._loader))
        while self.advance():
            yield self.batch

    def advance(self) -> bool:
        """Take the next micro-batch: of this step, or of the next one; False at the end of the epoch."""
        assert self._batches is not None
        end = object()
        found = next(self._batches, end)
        if found is end:
            return False
        self.batch = found
        return True

    def count_step(self) -> None:
        """Make Lightning's counters the run's: those of a machine that joins or is resumed are the others'.

        Lightning itself counts this step as processed and completed afterwards.
        """
        fit, run = cast(Any, self._trainer.fit_loop), self._run
        steps = fit.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total
        steps.ready, steps.completed = run.step, run.step - 1
        epoch, before = divmod(run.step + self._loader.order.left_out - 1, len(self))
        batches = fit.epoch_loop.batch_progress
        if batches.current.ready != before + 1:
            _set_epoch(self._trainer, epoch)
            batches.current.ready = batches.current.started = fit._data_fetcher.fetched = before + 1
            batches.current.processed = batches.current.completed = before
            batches.is_last_batch = fit._data_fetcher.done = before + 1 >= self._trainer.num_training_batches
        cast(Any, rank_zero_only).rank = 0 if run.writes else 1

    def end(self) -> None:
        """End training: the run saves its last checkpoint."""
        if self._batches is not None:
            self._batches.close()
        if self._epochs is not None and not self._trainer.should_stop:
            next(self._epochs, None)

    def _next_epoch(self) -> int | None:
        trainer = self._trainer
        if self._epochs is None:
            self._run.go_on_after(trainer.global_step)
            epochs = trainer.max_epochs if trainer.max_epochs and trainer.max_epochs > 0 else _MANY_EPOCHS
            max_steps = trainer.max_steps if trainer.max_steps > 0 else None
            self._epochs = self._run.epochs(epochs, max_steps=max_steps)
        elif self._batches is not None:
            self._batches.close()
        return next(self._epochs, None)


class _Stopping:
    """What EarlyStopping has seen, for machines that join and for resumed runs: all stop at the same step."""

    def __init__(self, trainer: Trainer) -> None:
        self._found = [one for one in cast(Any, trainer).callbacks if isinstance(one, EarlyStopping)]

    def state_dict(self) -> dict[str, Any]:
        return {str(number): one.state_dict() for number, one in enumerate(self._found)}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        for number, one in enumerate(self._found):
            if str(number) in state:
                one.load_state_dict(state[str(number)])


def _set_epoch(trainer: Trainer, epoch: int) -> None:
    current = cast(Any, trainer.fit_loop.epoch_progress.current)
    current.ready = current.started = epoch + 1
    current.processed = current.completed = epoch


def _refuse(trainer: Trainer, module: LightningModule) -> str:
    """Refuse settings that a run cannot keep; return the run's word for the precision."""
    precision = as_mixed_precision(str(trainer.precision))
    if not module.automatic_optimization or type(module).backward is not LightningModule.backward:
        raise UsageError(
            f"{type(module).__name__} has automatic_optimization=False, or a backward of its own",
            fix="write the loop with potluck.start: see docs/training-script.md",
        )
    if cast(Any, trainer).reload_dataloaders_every_n_epochs:
        raise UsageError("reload_dataloaders_every_n_epochs would change the data of a run", fix="leave it out")
    return precision
