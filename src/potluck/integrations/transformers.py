"""Hugging Face's Trainer, and trainers made from it such as TRL's SFTTrainer, on all machines of a run.

from potluck.integrations.transformers import on_potluck

trainer = on_potluck(Trainer)(model=model, args=arguments, train_dataset=dataset)

A step has the samples that it has on one machine: per_device_train_batch_size times gradient_accumulation_steps. They
are split over the machines, and no machine computes more than per_device_train_batch_size of them at once.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader
from transformers import Trainer, set_seed
from transformers.optimization import GreedyLR
from transformers.trainer_utils import EvalLoopOutput, get_last_checkpoint

from potluck.core.environment import hide_ranks, read_environment, read_launch
from potluck.core.errors import UsageError
from potluck.engine.data.loader import SharedLoader
from potluck.engine.prepared import PreparedModel, PreparedScheduler
from potluck.engine.start import start
from potluck.integrations.trainer_arguments import check_arguments, start_options
from potluck.integrations.trainer_data import Batches, batch_of, has_fixed_batches, loader_arguments, only
from potluck.integrations.trainer_progress import TrainerProgress

hide_ranks()  # TrainingArguments would let Accelerate connect to the other workers

FOLLOWS_METRICS = (ReduceLROnPlateau, GreedyLR)  # the Trainer moves these schedules after an evaluation
AnyTrainer = TypeVar("AnyTrainer", bound=Trainer)


def on_potluck(trainer: type[AnyTrainer], **options: Any) -> type[AnyTrainer]:
    """The same trainer class, training on all machines of a run. `options` are those of `potluck.start`."""
    for name in ("_prepare_for_training", "_run_epoch", "_inner_training_loop"):
        if not hasattr(trainer, name):
            raise UsageError(
                f"{trainer.__name__} has no {name}: its transformers is too old, or it is no Trainer",
                fix='pip install "transformers>=5"',
            )
    made = type(trainer.__name__, (TrainerOnPotluck, trainer), {"start_options": options, "__module__": __name__})
    return cast(type[AnyTrainer], made)


class TrainerOnPotluck(Trainer):  # type: ignore[misc]
    """Replaces the parts of a Trainer that belong to one process: data, backward pass, steps, evaluation, files."""

    start_options: dict[str, Any]
    optimizer: Any
    control: Any

    def create_accelerator_and_postprocess(self) -> None:
        check_arguments(self.args)
        self.run = start(**{**start_options(self.args), **self.start_options})
        # What these were computed to be: the first card. The run may use another one here.
        self.args.__dict__["_setup_devices"] = self.args.distributed_state.device = self.run.device
        self.args._n_gpu = min(1, self.args.n_gpu)  # the run has a worker for each card
        set_seed(self.args.seed)  # as the Trainer has left it: the order of the data is drawn from it
        super().create_accelerator_and_postprocess()
        self.accelerator.backward = self._backward
        self.accelerator.scaler = self.run.scaler  # the Trainer saves it in its checkpoints, and loads it
        self.accelerator.prepare_optimizer = lambda optimizer, **_: optimizer
        unwrap = self.accelerator.unwrap_model
        self.accelerator.unwrap_model = lambda model, *args, **kwargs: unwrap(_bare(model), *args, **kwargs)
        self._count: Tensor | None = None
        self._epochs: Iterator[int] | None = None
        self._epoch: int | None = None
        self._lacks_checkpoint = False

    def _build_accelerator_args(self, **kwargs: Any) -> dict[str, Any]:
        return {**super()._build_accelerator_args(**kwargs), "mixed_precision": "no"}  # the run's own precision counts

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        if self._epochs is not None:
            raise UsageError(
                "trainer.train was called twice: a run trains once", fix="make a new Trainer, in a new process"
            )
        if resume_from_checkpoint and not read_launch().is_alone:
            found = _find_checkpoint(resume_from_checkpoint, self.args.output_dir)
            self._lacks_checkpoint = found is None
            resume_from_checkpoint = found
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _prepare_for_training(
        self, max_steps: int, train_dataloader: "DataLoader[Any]", resume_from_checkpoint: str | None
    ) -> tuple[nn.Module, SharedLoader]:
        super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)
        if batch_of(train_dataloader) not in (self._train_batch_size, None):
            raise UsageError(
                f"{type(self).__name__} makes batches of its own for its DataLoader: Potluck cannot split them",
                fix="use a Trainer whose batches have per_device_train_batch_size samples, such as SFTTrainer",
            )
        if isinstance(self.lr_scheduler, FOLLOWS_METRICS) and self.compute_metrics is not None:
            raise UsageError(
                "a schedule that follows compute_metrics may take another turn on each machine",
                fix="leave compute_metrics out, so that the machines share one eval_loss, or use another schedule",
            )
        run, arguments = self.run, loader_arguments(train_dataloader, self.args.gradient_accumulation_steps, max_steps)
        schedule: PreparedScheduler
        self.model_wrapped, self.optimizer, schedule = run.prepare(self.model, self.optimizer, self.lr_scheduler)
        self._schedule = schedule
        if resume_from_checkpoint is not None:
            run.go_on_after(self.state.global_step)
        run.prepare(TrainerProgress(self))
        self.state.global_step = run.step
        loader = run.loader(**arguments)
        self._epochs = run.epochs(math.ceil(max_steps / len(loader)), max_steps=max_steps)
        self.callback_handler.optimizer, self.callback_handler.train_dataloader = self.optimizer, loader
        return self.model_wrapped, loader

    def _run_epoch(
        self,
        model: nn.Module,
        epoch: int,
        train_dataloader: SharedLoader,
        steps_in_epoch: int,
        *,
        trial: Any,
        ignore_keys_for_eval: list[str] | None,
        start_time: float,
        **_: Any,
    ) -> None:
        """Train an epoch, or its rest; nothing if the machines that this one joined have left it behind."""
        assert self._epochs is not None
        if self._epoch is None:
            self._epoch = next(self._epochs, -1)
        if self._epoch < 0:
            self.control.should_training_stop = True  # the run has ended, on machines that this one has not followed
        while 0 <= self._epoch <= epoch:
            told: dict[str, Any] = {"model": model, "epoch": epoch, "start_time": start_time, "trial": trial}
            told["ignore_keys_for_eval"] = ignore_keys_for_eval
            norm, rate = self._train_epoch(train_dataloader, steps_in_epoch, told)
            self.control = self.callback_handler.on_epoch_end(self.args, self.state, self.control)
            self._maybe_log_save_evaluate(self._tr_loss, norm, learning_rate=rate, **told)
            if self.control.should_training_stop and self.state.global_step < self.state.max_steps:
                return  # all machines stop here: they have the same metrics and the same callbacks
            self._epoch = next(self._epochs, -1)

    def _train_epoch(
        self, loader: SharedLoader, steps_in_epoch: int, told: dict[str, Any]
    ) -> tuple[Tensor | None, float | None]:
        """All steps of an epoch that are left; the last step's gradient norm and learning rate."""
        norm: Tensor | None = None
        rate: float | None = None
        begins = True
        for inputs in loader:
            if begins:
                self.control = self.callback_handler.on_step_begin(self.args, self.state, self.control)
            norm = self._add_gradients(told["model"], inputs)
            begins = norm is not None
            if norm is None:
                self.control = self.callback_handler.on_substep_end(self.args, self.state, self.control)
                continue
            before = self.run.step
            self.control = self.callback_handler.on_pre_optimizer_step(self.args, self.state, self.control)
            self.optimizer.step()
            rate = self._get_learning_rate()
            self.control = self.callback_handler.on_optimizer_step(self.args, self.state, self.control)
            told["model"].zero_grad()
            if self.run.step == before:
                continue  # a machine was lost in this step: the loader gives the same samples again
            epoch, steps = divmod(self.run.step - 1, len(loader))
            batches = min(self.args.gradient_accumulation_steps * (steps + 1), steps_in_epoch)
            self._note_step(before, epoch + batches / steps_in_epoch)
            self._maybe_log_save_evaluate(self._tr_loss, norm, learning_rate=rate, **told)
            if self.control.should_epoch_stop or self.control.should_training_stop:
                break
        return norm, rate

    def _add_gradients(self, model: nn.Module, inputs: Any) -> Tensor | None:
        """Forward and backward pass of one micro-batch; after the last one of a step, the norm of the mean gradient."""
        items = self._get_num_items_in_batch([inputs], self.run.device)
        told = None if items is None else torch.as_tensor(items)
        self._count = _count_tokens(inputs, shifted=self._loss_shifts_labels) if told is None else told
        self.current_gradient_accumulation_steps = 1
        # A micro-batch without one label counts nothing; its loss must still be a number.
        self.training_step(model, inputs, None if told is None else told.clamp(min=1))
        self.current_flos += float(self.floating_point_ops(inputs))
        self._track_num_input_tokens(inputs)
        return self.run.clip_gradients(self.args.max_grad_norm or math.inf)

    def _backward(self, loss: Tensor, **_: Any) -> None:
        self.run.backward(loss, count=self._count)

    def _note_step(self, before: int, epoch: float) -> None:
        """Count a committed step: global_step is the run's, and the loss that is logged is the mean of all machines."""
        run, state = self.run, self.state
        if self._lacks_checkpoint and before == 0 and run.step == 1:
            raise UsageError(
                f"resume_from_checkpoint: no machine has a checkpoint in {self.args.output_dir}",
                fix="start on the machine that has it, or leave resume_from_checkpoint out",
            )
        if not isinstance(self.lr_scheduler, FOLLOWS_METRICS):
            self._schedule.step()
        if run.loss is None and self.args.logging_nan_inf_filter:
            self._tr_loss += self._tr_loss / (1 + state.global_step - self._globalstep_last_logged)
        else:
            # A machine that has joined in this step has the others' sum by now, up to their global_step.
            self._tr_loss += (math.nan if run.loss is None else run.loss) * max(1, run.step - state.global_step)
        state.global_step, state.epoch = run.step, epoch
        state.is_world_process_zero = state.is_local_process_zero = run.writes
        self.control = self.callback_handler.on_step_end(self.args, state, self.control)

    def _wrap_model(self, model: nn.Module, training: bool = True, *args: Any, **kwargs: Any) -> nn.Module:
        if not training and isinstance(self.model_wrapped, PreparedModel):
            return self.model_wrapped  # evaluation in the run's precision
        return cast(nn.Module, super()._wrap_model(model, training, *args, **kwargs))

    def evaluation_loop(
        self,
        dataloader: "DataLoader[Any]",
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """The mean loss, by all machines together; predictions, by each machine for itself."""
        shared = self.is_in_train and self._epoch is not None and self.run.step > 0
        if shared and prediction_loss_only and has_fixed_batches(dataloader):
            model = self._wrap_model(self.model, training=False)

            def measure(inputs: Any, num_rows: int) -> dict[str, Tensor]:
                loss, _, _ = self.prediction_step(model, inputs, prediction_loss_only=True, ignore_keys=ignore_keys)
                if loss is None:
                    raise UsageError("the evaluation data has no labels", fix="leave eval_dataset out, or add labels")
                counts = bool(loss.isfinite().all()) or not self.args.logging_nan_inf_filter
                return {"loss": loss.reshape(1).expand(num_rows if counts else 0)}

            values = self.run.evaluate(Batches(dataloader), measure, name=metric_key_prefix, batch=1, collate=only)
            metrics = {f"{metric_key_prefix}_loss": values["loss"]}
            return EvalLoopOutput(None, None, metrics, len(cast(Any, dataloader.dataset)))
        output = super().evaluation_loop(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
        return output._replace(metrics=self._agree_on(output.metrics)) if shared else output

    def _agree_on(self, metrics: dict[str, Any]) -> dict[str, float]:
        """The metrics of one machine: others may round otherwise, and all must draw the same conclusion from them."""
        return {**metrics, **self.run.agree(_numbers(metrics))}

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        if self.run.writes:
            super()._save_checkpoint(*args, **kwargs)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if not self.run.writes:
            return
        super().save_model(output_dir, _internal_call=_internal_call)
        if not _internal_call:
            folder = Path(output_dir or self.args.output_dir).absolute()
            self.run.say(f"{read_environment().machine}: the model is saved in {folder}")

    def log(self, logs: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super().log(logs, *args, **kwargs)
        if self.run.writes:
            self.run.log(**_numbers(logs))

    def is_local_process_zero(self) -> bool:
        return self.run.writes

    def is_world_process_zero(self) -> bool:
        return self.run.writes


def _find_checkpoint(asked: str | bool, output_dir: str | None) -> str | None:
    """The folder of the checkpoint on this machine, if it has one."""
    if isinstance(asked, str):
        return asked if Path(asked).is_dir() else None
    return get_last_checkpoint(output_dir) if output_dir and Path(output_dir).is_dir() else None


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if isinstance(value, (int, float))}


def _bare(model: nn.Module) -> nn.Module:
    return model.module if isinstance(model, PreparedModel) else model


def _count_tokens(inputs: Any, *, shifted: bool) -> Tensor | None:
    """How many tokens the loss of a model that is not told is a mean over; None if it is a mean over samples."""
    labels = inputs.get("labels") if hasattr(inputs, "get") else None
    if not isinstance(labels, Tensor) or labels.dim() != 2 or labels.is_floating_point():
        return None
    return (labels[:, 1:] if shifted else labels).ne(-100).sum()
