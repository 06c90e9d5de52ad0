"""A run as the training script sees it: prepare, loader, epochs, backward, evaluate."""

import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, overload

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from potluck.core.environment import read_environment
from potluck.core.errors import UsageError
from potluck.core.exchange_options import may_be_rounds
from potluck.core.run_options import RunOptions
from potluck.engine.closing import RunClosing
from potluck.engine.data.evaluation import Measure, evaluate, evaluation_mode
from potluck.engine.data.fetching import Collate
from potluck.engine.data.loader import SharedLoader
from potluck.engine.data.reading import dataset_and_collate, read_as
from potluck.engine.full_memory import MemoryLimit
from potluck.engine.other_loops import OtherLoops
from potluck.engine.prepared import PreparedModel, PreparedOptimizer, PreparedScheduler
from potluck.engine.preparing import Preparation
from potluck.engine.steps.backward import BackwardPass
from potluck.engine.steps.parts import RunParts
from potluck.engine.steps.progress import Progress
from potluck.events import types as events

_LONGEST_LINE = 10_000


class Run(OtherLoops):
    """One worker's part of a training run. Made by `potluck.start()`.

    A context manager; without `with`, the run closes when the process ends.
    """

    def __init__(self, options: RunOptions, parts: RunParts) -> None:
        self.folder = parts.folder
        self.name = parts.folder.name
        self.device = parts.device
        self.seed = options.seed
        self._options = options
        self._parts = parts
        self._progress = Progress(parts, options.checkpoint_every)
        self._memory = MemoryLimit(parts, self._progress, options.micro_batch)
        self._preparation = Preparation(
            parts,
            self._progress,
            self._memory.noticing,
            gradient_checkpointing=options.gradient_checkpointing,
            in_rounds=may_be_rounds(options.exchange),
            is_tuning=options.tuning,
        )
        self._backward = BackwardPass(parts, self._progress, self._memory.noticing)
        self._loader: SharedLoader | None = None
        self._lines_printed: dict[int, int] = {}
        """How many lines the script has printed with `run.print`, by step; only the current step is kept."""
        self._closing = RunClosing(
            parts, self._progress, lambda: None if self._loader is None else self._loader.close()
        )

    @property
    def step(self) -> int:
        """The number of committed optimizer steps since the run began, including those before a resume."""
        return self._progress.settled()

    @overload
    def prepare(
        self, model: nn.Module, optimizer: Optimizer, /, *, frozen_precision: str | None = None
    ) -> tuple[PreparedModel, PreparedOptimizer]: ...
    @overload
    def prepare(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        scheduler: LRScheduler,
        /,
        *,
        frozen_precision: str | None = None,
    ) -> tuple[PreparedModel, PreparedOptimizer, PreparedScheduler]: ...
    @overload
    def prepare(self, model: nn.Module, /, *, frozen_precision: str | None = None) -> PreparedModel: ...
    @overload
    def prepare(self, *objects: Any, frozen_precision: str | None = None) -> Any: ...
    def prepare(self, *objects: Any, frozen_precision: str | None = None) -> Any:
        """Place models on the device, wrap all objects, and restore their state when the run is resumed.

        Takes models, optimizers, learning-rate schedules and a DataLoader, in any order and in one or several calls,
        and returns their wrappers in the same order; for a single object, the wrapper without a tuple. The state of
        any other object with `state_dict` and `load_state_dict` goes into checkpoints, and to machines that join.

        `frozen_precision`: bf16 or fp16, in which this machine keeps the models' frozen parameters. Machines may
        differ in it. By default POTLUCK_FROZEN_PRECISION counts; without that, they stay as the script loaded them.
        """
        prepared = self._preparation.add(objects, self.loader, frozen_precision or read_environment().frozen_precision)
        return prepared[0] if len(prepared) == 1 else tuple(prepared)

    def loader(
        self,
        dataset: Any,
        *,
        global_batch: int | None = None,
        num_workers: int | None = None,
        collate: Collate | None = None,
        num_samples: int | None = None,
        **keywords: Any,
    ) -> SharedLoader:
        """A loader of this worker's share of every global batch, reshuffled each epoch, on the run's device.

        `num_workers` processes read ahead. `collate` makes a batch from a list of samples, as DataLoader's collate_fn
        does. `num_samples` is the length of an epoch, for an IterableDataset without `__len__`. The loader also takes
        DataLoader's keywords (batch_size, shuffle, sampler, drop_last, collate_fn), or a DataLoader in place of the
        dataset; then batch_size is the global batch: the samples of a step over all machines.
        """
        reading = read_as(
            dataset,
            global_batch=global_batch,
            num_workers=num_workers,
            collate=collate,
            num_samples=num_samples,
            keywords=keywords,
        )
        order = reading.order(self.seed)
        if self._loader is not None:
            self._loader.check_replaced_by(reading)
            self._loader.close()
        self._progress.use(order)
        self._loader = SharedLoader(
            reading,
            order,
            parts=self._parts,
            progress=self._progress,
            micro_batch=self._memory.micro_batch,
            noticing=self._memory.noticing,
        )
        if self._preparation.is_complete:
            self._memory.tell(self._loader.batch_size)
        return self._loader

    def epochs(self, num_epochs: int, *, max_steps: int | None = None) -> Iterator[int]:
        """Iterate over epoch numbers, counted from 0; a resumed run starts with the epoch that it had reached.

        The run saves a checkpoint after each epoch, when the loop's body has ended. Ctrl-C ends training after the
        current step.
        """
        self._preparation.complete()
        if self._loader is not None:
            self._memory.tell(self._loader.batch_size)
        self._parts.record_settings()
        return self._progress.epochs(num_epochs, max_steps)

    def backward(self, loss: Tensor, *, count: float | Tensor | None = None) -> None:
        """Add the gradient of the current batch's mean loss; after a step's last batch, gradients are the global mean.

        `count`: how many elements the loss is a mean over, if these are not samples but tokens or pixels. A loss with
        one value per sample (reduction="none") is averaged, and each value counts once.
        """
        self._backward(loss, count)

    def clip_gradients(self, max_norm: float, parameters: Iterable[Tensor] | None = None) -> Tensor | None:
        """Scale the global gradient down to `max_norm`; return the norm before clipping. Call it after `backward`.

        `parameters`: clip only these, such as one of two models; by default all that the optimizers train.
        Returns None before the last micro-batch of a step, where there is no global gradient yet.
        """
        if not self._progress.current_step("run.clip_gradients").has_all_gradients:
            return None  # the sum over micro-batches is not complete yet
        chosen = self._progress.training.trained_parameters() if parameters is None else list(parameters)
        return nn.utils.clip_grad_norm_(chosen, max_norm)

    def evaluate(
        self,
        dataset: Any,
        measure: Measure,
        *,
        name: str = "held_out",
        batch: int = 256,
        collate: Collate | None = None,
    ) -> dict[str, float]:
        """Exact means over a dataset: `measure(*batch)` returns, under each name, one value per sample (or token)."""
        started = time.monotonic()
        dataset, collate = dataset_and_collate(dataset, collate)
        self._progress.settle_step()
        with evaluation_mode(self._preparation.wrapped), self._parts.group.round.global_parameters():
            values = evaluate(
                dataset,
                measure,
                group=self._parts.group,
                device=self.device,
                batch=min(batch, self._memory.micro_batch() or batch),
                seed=self.seed,
                collate=collate,
            )
        self._parts.journal.emit(
            events.Evaluated(
                step=self.step,
                name=name,
                samples=len(dataset),
                values={key: events.finite(value) for key, value in values.items()},
                seconds=time.monotonic() - started,
            )
        )
        return values

    def log(self, **values: float | Tensor) -> None:
        """Write your own numbers into the run's event file."""
        numbers = {name: events.finite(float(value)) for name, value in values.items()}
        self._parts.journal.emit(events.MetricsLogged(step=self.step, values=numbers))

    def say(self, text: str) -> None:
        """Print one line on this machine, and write it into the run's event file."""
        self._parts.journal.say(text)

    def print(self, text: str) -> None:
        """Print a line once, however many workers there are."""
        if self._parts.group.is_benched:
            return
        number = self._lines_printed.get(self.step, 0)
        self._lines_printed = {self.step: number + 1}
        self._parts.journal.emit(events.LinePrinted(text=str(text)[:_LONGEST_LINE], step=self.step, number=number))
        if self._parts.group.writes:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    def save_checkpoint(self) -> None:
        """Save a checkpoint now, in the background, in addition to those that the run saves by itself."""
        self._progress.settle_step()
        if self._progress.open_step is not None:
            raise UsageError(
                "run.save_checkpoint was called inside a step",
                fix="set checkpoint_every=... in potluck.start, or call it after the loader's loop",
            )
        self._progress.saving.save()

    def request_stop(self) -> None:
        """Stop in an orderly way after the current step, as Ctrl-C does."""
        self._progress.stopping.request.ask()

    def close(self, error: BaseException | None = None) -> None:
        """Wait for the last checkpoint, write the summary, close the files. A second call does nothing."""
        self._closing.close(error)

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.leave_block(error)
