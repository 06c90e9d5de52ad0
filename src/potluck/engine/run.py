"""A run as the training script sees it: prepare, loader, epochs, backward, evaluate."""

import atexit
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from potluck.core.errors import MeasureError, UsageError
from potluck.core.run_folder import RunFolder
from potluck.engine.balance import Balance
from potluck.engine.checkpoints import CheckpointWriter
from potluck.engine.evaluation import Measure, evaluate
from potluck.engine.fetching import Collate, Samples
from potluck.engine.fingerprint import fingerprint, gradient_bytes
from potluck.engine.gradient_checkpointing import checkpoint_blocks
from potluck.engine.group import Group
from potluck.engine.journal import Journal
from potluck.engine.loader import SharedLoader
from potluck.engine.position import DataOrder
from potluck.engine.precision import Precision
from potluck.engine.prepared import (
    PreparedModel,
    PreparedOptimizer,
    PreparedScheduler,
    check_parameters,
    trained_parameters,
    weigh,
)
from potluck.engine.progress import Progress
from potluck.engine.state import EpochSoFar, TrainingState, check_same_data
from potluck.engine.step import Step
from potluck.events import types as events
from potluck.measuring.memory import is_out_of_memory
from potluck.measuring.step_timer import StepTimer


class Run:
    """One worker's part of a training run. Made by `potluck.start()`.

    A context manager; without `with` it closes when the process ends.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        journal: Journal,
        group: Group,
        device: torch.device,
        precision: Precision,
        writer: CheckpointWriter,
        timer: StepTimer,
        balance: Balance,
        machine: str,
        seed: int,
        gradient_checkpointing: bool,
        micro_batch: int | None,
        checkpoint_every: int | None,
        restored: dict[str, Any] | None,
        record_settings: Callable[[], None],
    ) -> None:
        self.folder = folder
        self.device = device
        self.seed = seed
        self._machine = machine
        self._journal = journal
        self._group = group
        self._precision = precision
        self._writer = writer
        self._gradient_checkpointing = gradient_checkpointing
        self._micro_batch = micro_batch
        self._balance = balance
        self._restored = restored
        self._record_settings = record_settings
        self._progress = Progress(
            folder,
            journal=journal,
            group=group,
            writer=writer,
            timer=timer,
            balance=balance,
            checkpoint_every=checkpoint_every,
            committed=0 if restored is None else int(restored["step"]),
            so_far=EpochSoFar() if restored is None else EpochSoFar(**restored["epoch_so_far"]),
        )
        self._model: PreparedModel | None = None
        self._loader: SharedLoader | None = None
        self._closed = False
        atexit.register(self._close_at_exit)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def step(self) -> int:
        """Committed optimizer steps since the run began, those before a resume included."""
        return self._progress.step

    @overload
    def prepare(self, model: nn.Module, optimizer: Optimizer, /) -> tuple[PreparedModel, PreparedOptimizer]: ...
    @overload
    def prepare(
        self, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler, /
    ) -> tuple[PreparedModel, PreparedOptimizer, PreparedScheduler]: ...
    def prepare(self, model: nn.Module, optimizer: Optimizer, *schedulers: LRScheduler) -> Any:
        """Place the model on the device, wrap all of them, and restore their state when the run is resumed."""
        check_parameters(model, optimizer)
        model.to(self.device)
        training = TrainingState(model, optimizer, schedulers, self._precision)
        self._progress.training = training
        if self._restored is not None:
            training.restore(self._restored)
        if self._gradient_checkpointing:
            checkpoint_blocks(model)
        self._balance.recall(fingerprint(model), gradient_bytes(model))
        progress = self._progress
        wrapped = self._group.wrap(model, progress.capture, progress.restore, lambda: bool(progress.stop))
        self._model = PreparedModel(
            model, wrapped, self._precision, self._may_clear_gradients, self._noticing_full_memory
        )
        self._journal.emit(events.ModelPrepared(num_parameters=sum(p.numel() for p in model.parameters())))
        return (
            self._model,
            PreparedOptimizer(optimizer, self._progress.commit, self._may_clear_gradients),
            *(PreparedScheduler(scheduler, self._may_step_schedule) for scheduler in schedulers),
        )

    def loader(
        self,
        dataset: Dataset[Any],
        *,
        global_batch: int,
        num_workers: int = 0,
        collate: Collate | None = None,
    ) -> SharedLoader:
        """This worker's part of every global batch, shuffled anew each epoch, on the run's device.

        `num_workers` processes read ahead. `collate` makes a batch from a list of samples, as DataLoader's does.
        """
        num_samples = len(dataset)  # type: ignore[arg-type]
        if num_samples < 1 or global_batch < 1:
            raise UsageError(
                f"{num_samples} samples cannot be cut into global batches of {global_batch}",
                fix="give run.loader a dataset with samples and a global_batch of at least 1",
            )
        order = DataOrder(num_samples, global_batch, self.seed)
        if self._restored is not None:
            check_same_data(self._restored, order)
        self._progress.order = order
        self._tell_memory_cap(global_batch)
        self._loader = SharedLoader(
            Samples(dataset, self.seed, collate),
            order,
            group=self._group,
            progress=self._progress,
            device=self.device,
            micro_batch=self._micro_batch or self._balance.memory_cap,
            num_workers=num_workers,
        )
        return self._loader

    def _tell_memory_cap(self, global_batch: int) -> None:
        cap = self._balance.memory_cap
        if self._micro_batch is None and cap is not None and cap < global_batch:
            at_once = "1 sample" if cap == 1 else f"{cap} samples"
            self._journal.say(
                f"{self._machine} takes at most {at_once} at once: more do not fit into its memory; "
                "a larger part is cut into pieces, with the same result"
            )

    def epochs(self, num_epochs: int, *, max_steps: int | None = None) -> Iterator[int]:
        """Epoch numbers from 0, starting with the one that the committed step is in.

        A checkpoint is saved after each epoch, when the loop's body is through. Ctrl-C ends training after the step.
        """
        _ = self._progress.training, self._progress.order  # both must be there before the first iteration
        self._record_settings()
        return self._progress.epochs(num_epochs, max_steps)

    def backward(self, loss: Tensor, *, count: float | Tensor | None = None) -> None:
        """Add the gradient of a mean loss over the batch in hand; with a step's last batch, make it the global mean.

        `count` is how many elements the mean is over, when these are not samples: tokens, pixels.
        """
        step = self._progress.current_step("run.backward")
        weight = step.add(loss, count)
        weighted = self._precision.scale(loss * weight)
        if step.is_last_micro_batch:
            self._announce(step)
        with self._noticing_full_memory():
            weighted.backward()  # type: ignore[no-untyped-call]
        if not step.is_last_micro_batch:
            return
        step.total = self._group.total()
        weigh(trained_parameters(self._progress.training.optimizer), step.total.weight / step.global_batch)
        self._precision.unscale(self._progress.training.optimizer, step.total.scale)

    @contextmanager
    def _noticing_full_memory(self) -> Iterator[None]:
        """Remember how much did not fit, so that the next start cuts this worker's part into smaller pieces."""
        try:
            yield
        except Exception as error:
            step = self._progress.open_step
            if step is None or not is_out_of_memory(error):
                raise
            at_once = self._balance.out_of_memory(step.in_hand)
            raise MeasureError(
                f"{step.in_hand} samples at once do not fit into the memory of {self.device} on {self._machine}",
                fix=f"start this worker again: it will take at most {at_once} at once, with the same result",
            ) from error

    def _announce(self, step: Step) -> None:
        progress = self._progress
        scale, is_last = self._precision.loss_scale, bool(progress.stop)
        part = self._group.announce(step.weight, step.loss_sum, scale, is_last=is_last)
        if part.step != step.number:
            step.move(part.step, progress.order.epoch_of(part.step), progress.order.batch_of(part.step))

    def clip_gradients(self, max_norm: float) -> Tensor | None:
        """Scale the global gradient down to this norm; return the norm before. Call it after `backward`."""
        if not self._progress.current_step("run.clip_gradients").has_all_gradients:
            return None  # the sum over micro-batches is not complete yet
        return nn.utils.clip_grad_norm_(trained_parameters(self._progress.training.optimizer), max_norm)

    def evaluate(
        self,
        dataset: Dataset[Any],
        measure: Measure,
        *,
        name: str = "held_out",
        batch: int = 256,
        collate: Collate | None = None,
    ) -> dict[str, float]:
        """Exact means over a dataset: `measure(*batch)` returns one value a sample (or token) under each name."""
        started = time.monotonic()
        modules = [] if self._model is None else list(self._model.modules())
        were_training = [module.training for module in modules]
        for module in modules:
            module.training = False
        try:
            with torch.no_grad():
                values = evaluate(
                    dataset,
                    measure,
                    group=self._group,
                    device=self.device,
                    batch=min(batch, self._micro_batch or batch),
                    seed=self.seed,
                    collate=collate,
                )
        finally:
            for module, was_training in zip(modules, were_training, strict=True):
                module.training = was_training
        self._journal.emit(
            events.Evaluated(
                step=self.step,
                name=name,
                samples=len(dataset),  # type: ignore[arg-type]
                values={key: events.finite(value) for key, value in values.items()},
                seconds=time.monotonic() - started,
            )
        )
        return values

    def log(self, **values: float | Tensor) -> None:
        """Keep numbers of your own with the run's events."""
        numbers = {name: events.finite(float(value)) for name, value in values.items()}
        self._journal.emit(events.MetricsLogged(step=self.step, values=numbers))

    def say(self, text: str) -> None:
        """Tell the person at this machine one line."""
        self._journal.say(text)

    def print(self, text: str) -> None:
        """Print a line once, however many workers there are."""
        if self._group.writes:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    def save_checkpoint(self) -> None:
        """Save now, in the background. The run does so by itself after every epoch and every `checkpoint_every`."""
        if self._progress.open_step is not None:
            raise UsageError(
                "run.save_checkpoint was called inside a step",
                fix="set checkpoint_every=... in potluck.start, or call it after the loader's loop",
            )
        self._progress.save()

    def request_stop(self) -> None:
        """Stop in an orderly way after the current step, as Ctrl-C does."""
        self._progress.stop.ask()

    def close(self, error: BaseException | None = None) -> None:
        """Wait for the last checkpoint, write the summary, let go of the files. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._close_at_exit)
        problem = error
        with ExitStack() as stack:  # files and threads are let go whatever else goes wrong
            stack.callback(self._journal.close)
            stack.callback(self._group.close)
            stack.callback(self._writer.close)
            try:
                self._finish_work(is_orderly=error is None)
            except Exception as failure:  # noqa: BLE001  raised below, unless there is an earlier one
                problem = problem or failure
            try:
                self._journal.end(*self._ending(problem), self.step)
            except Exception as failure:  # noqa: BLE001
                problem = problem or failure
        if problem is not None and problem is not error:
            raise problem

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)

    def _finish_work(self, *, is_orderly: bool) -> None:
        if self._loader is not None:
            self._loader.close()
        self._progress.note_saved(self._writer.wait())
        if is_orderly:
            self._progress.save_what_is_new()
            if self._progress.is_finished:
                self._group.finish()

    def _close_at_exit(self) -> None:
        self.close(getattr(sys, "last_value", None))

    def _ending(self, error: BaseException | None) -> tuple[Literal["finished", "stopped", "failed"], str]:
        if self._progress.was_stopped:
            return "stopped", ""
        if isinstance(error, KeyboardInterrupt | SystemExit):
            return "stopped", "ended at once, without saving"
        if error is not None:
            return "failed", f"{type(error).__name__}: {error.args[0] if error.args else ''}"
        return "finished", "" if self._progress.is_finished else "the script ended training before the last step"

    def _may_clear_gradients(self) -> bool:
        step = self._progress.open_step
        return step is None or step.is_fresh or step.is_decided

    def _may_step_schedule(self) -> bool:
        step = self._progress.open_step
        return step is None or step.changed_parameters
