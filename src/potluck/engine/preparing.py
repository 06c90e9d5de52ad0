"""`run.prepare`: takes models, optimizers, schedules and a DataLoader, in any order and over several calls."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from potluck.core.errors import UsageError
from potluck.engine.checkpoints.state import TrainingState, follow_parameters, parameters_of
from potluck.engine.compute.fingerprint import fingerprint, gradient_bytes
from potluck.engine.compute.frozen_precision import round_frozen
from potluck.engine.compute.gradient_checkpointing import checkpoint_blocks
from potluck.engine.compute.outer_step import OuterStep
from potluck.engine.compute.tuner import Tuner
from potluck.engine.group.place import States
from potluck.engine.prepared import PreparedModel, PreparedOptimizer, PreparedScheduler
from potluck.engine.steps.parts import RunParts
from potluck.engine.steps.progress import Progress
from potluck.events.types import ModelPrepared
from potluck.measuring.tuning import Tuning


class Preparation:
    """Wraps the objects that a script passes to `run.prepare`, and restores their state when the run is resumed."""

    def __init__(
        self,
        parts: RunParts,
        progress: Progress,
        noticing: Callable[[], AbstractContextManager[None]],
        *,
        gradient_checkpointing: bool,
        in_rounds: bool = False,
        is_tuning: bool,
    ) -> None:
        self.training = progress.training
        self._parts = parts
        self._progress = progress
        self._noticing = noticing
        self._gradient_checkpointing = gradient_checkpointing
        self._in_rounds = in_rounds
        self._is_tuning = is_tuning
        self._frozen_precision: str | None = None
        self._exchanging: nn.Module | None = None
        self._made: dict[int, tuple[Any, Any]] = {}  # by the object's id: the user's object, its wrapper

    @property
    def is_complete(self) -> bool:
        """Whether training has begun; then no object may be added."""
        return self._exchanging is not None

    @property
    def wrapped(self) -> list[nn.Module]:
        """The models as `run.prepare` returned them."""
        return [made for _, made in self._made.values() if isinstance(made, nn.Module)]

    def add(
        self, objects: Iterable[Any], make_loader: Callable[[Any], Any], frozen_precision: str | None = None
    ) -> list[Any]:
        """Prepare the objects; return their wrappers in the same order."""
        objects, self._frozen_precision = list(objects), frozen_precision
        for given in objects:
            if kind_of(given) is None:
                raise refusal(given)
        if self.is_complete and any(id(given) not in self._made for given in objects):
            raise UsageError(
                "run.prepare was called after training began",
                fix="call run.prepare with all models, optimizers and schedules before `for epoch in run.epochs(...)`",
            )
        # A loader needs to know the model, and an optimizer's parameters are on the device only after its model is.
        for kind in ("model", "optimizer", "schedule", "stateful", "loader"):
            for given in objects:
                if kind_of(given) == kind and id(given) not in self._made:
                    self._made[id(given)] = given, self._make(kind, given, make_loader)
        self._check_parameters(given for given in objects if isinstance(given, Optimizer))
        return [self._made[id(given)][1] for given in objects]

    def complete(self) -> None:
        """Called when training begins: check the prepared objects, and make the module that exchanges gradients."""
        if self.is_complete:
            return
        training = self.training
        if not training.models:
            raise UsageError("the run has no model yet", fix="call run.prepare(model, optimizer) first")
        if not training.optimizers:
            raise UsageError(
                "the run has no optimizer yet: no parameter would change",
                fix="make it from model.parameters(), then: optimizer = run.prepare(optimizer)",
            )
        if training.has_several_optimizers and training.precision.name == "fp16":
            raise UsageError(
                "mixed_precision='fp16' has one loss scale, and several optimizers may overflow apart",
                fix="use mixed_precision='bf16', or one optimizer with several parameter groups",
            )
        self._check_parameters(training.optimizers)
        restored = self._parts.restored
        if restored is not None:
            training.check_numbers(restored)
            training.precision.load_state_dict(restored["precision"])
        if self._in_rounds and self._parts.group.waits:
            training.outer = self._make_outer_step(training)
        self._exchanging = self._wrap(training.model)

    def _make_outer_step(self, training: TrainingState) -> OuterStep:
        if training.is_several:
            raise UsageError(
                "rounds train one model with one optimizer",
                fix="use --exchange int4 for several models or optimizers",
            )
        outer = OuterStep(training.model, training.optimizers[0])
        outer.about_to_change = self._progress.stopping.deadline.forbid
        if self._parts.restored is not None:
            outer.load_state_dict(self._parts.restored.get("outer"))
        return outer

    def _wrap(self, model: nn.Module) -> nn.Module:
        """Load the stored speed of the models on this machine, and make the module that exchanges gradients."""
        parts, progress = self._parts, self._progress
        parts.balance.recall(fingerprint(model), gradient_bytes(model))
        wrapped = parts.group.wrap(
            model,
            States(
                read=progress.capture,
                replace=progress.restore,
                frozen=progress.training.frozen,
                values=progress.training.values,
            ),
            lambda: bool(progress.stopping.request),
            is_several=progress.training.is_several,
            outer=progress.training.outer,
        )
        parts.journal.emit(ModelPrepared(num_parameters=sum(p.numel() for p in model.parameters())))
        return wrapped

    def may_clear_gradients(self) -> bool:
        """Whether zero_grad may clear gradients: not between a step's micro-batches, while gradients are summed."""
        step = self._progress.open_step
        if step is None or step.is_fresh or step.is_decided:
            return True
        return step.is_several and step.has_all_gradients

    def may_step_schedule(self) -> bool:
        step = self._progress.open_step
        return step is None or step.changed_parameters or (step.was_applied and not step.is_decided)

    def _make(self, kind: str, given: Any, make_loader: Callable[[Any], Any]) -> Any:
        if isinstance(given, (PreparedModel, PreparedOptimizer, PreparedScheduler)):
            return given
        match kind:
            case "model":
                return self._make_model(given)
            case "optimizer":
                self.training.optimizers.append(given)
                follow_parameters(given)
                if self._parts.restored is not None:
                    self.training.restore_optimizer(self._parts.restored, len(self.training.optimizers) - 1)
                return PreparedOptimizer(given, self._progress.apply, self.may_clear_gradients)
            case "schedule":
                self.training.schedulers.append(given)
                if self._parts.restored is not None:
                    self.training.restore_scheduler(self._parts.restored, len(self.training.schedulers) - 1)
                return PreparedScheduler(given, self.may_step_schedule)
            case "stateful":
                self.training.others.append(given)
                if self._parts.restored is not None:
                    self.training.restore_other(self._parts.restored, len(self.training.others) - 1)
                return given
        return make_loader(given)

    def _make_model(self, model: nn.Module) -> nn.Module:
        model.to(self._parts.device)
        if not any(True for _ in model.parameters()):
            return model  # a loss function: nothing to train or to exchange
        self.training.models.append(model)
        if self._frozen_precision is not None:
            self._round_frozen(model, self._frozen_precision)
        if self._parts.restored is not None:
            self.training.restore_model(self._parts.restored, len(self.training.models) - 1)
        if self._gradient_checkpointing:
            checkpoint_blocks(model)

        def exchanging() -> nn.Module:
            return model if self._exchanging is None or self.training.is_several else self._exchanging

        return PreparedModel(
            model, exchanging, self.training.precision, self.may_clear_gradients, self._noticing, tuner=self._tuner()
        )

    def _round_frozen(self, model: nn.Module, precision: str) -> None:
        saved = round_frozen(model, precision)
        if saved:
            self.training.frozen_precision = precision
            self._parts.journal.say(
                f"{self._parts.machine}: frozen parameters are kept in {precision}, which saves {saved / 1e6:,.1f} MB"
            )

    def _tuner(self) -> Tuner:
        """Tunes the passes of the run's only model; several models share a profile, so these stay as they are."""
        parts, kept = self._parts, self._parts.balance.kept
        return Tuner(
            parts.device,
            parts.precision.forward_context,
            recall=lambda: Tuning() if self.training.is_several else kept.recall_tuning(),
            keep=kept.keep_tuning,
            say=lambda text: parts.journal.say(f"{parts.machine}: {text}"),  # the displays of all machines show it
            is_training=self._has_samples,
            is_on=self._is_tuning,
        )

    def _has_samples(self) -> bool:
        """Whether training has begun with real samples: a worker that joins first has a stand-in for them."""
        step = self._progress.open_step
        return self.is_complete and (step is None or step.in_hand > 0)

    def _check_parameters(self, optimizers: Iterable[Optimizer]) -> None:
        """Refuse optimizers that cannot train these models."""
        known = {id(parameter) for parameter in self.training.parameters()}
        for optimizer in optimizers:
            trained = parameters_of(optimizer)
            if known and not {id(parameter) for parameter in trained} <= known:
                raise UsageError(
                    "the optimizer holds parameters that are not the model's",
                    fix="make the optimizer from model.parameters() of the same model, then call run.prepare",
                )
            if not any(parameter.requires_grad for parameter in trained):
                raise UsageError(
                    "no parameter of the optimizer requires a gradient: there is nothing to train",
                    fix="unfreeze some with parameter.requires_grad_(True) before run.prepare",
                )


def kind_of(given: Any) -> str | None:
    """The kind of an argument of run.prepare: model, optimizer, loader or schedule; None for anything else."""
    if isinstance(given, nn.Module):
        return "model"
    if isinstance(given, Optimizer):
        return "optimizer"
    if isinstance(given, DataLoader):
        return "loader"
    # Schedules of other libraries share no class with torch's, only these names.
    if all(hasattr(given, name) for name in ("optimizer", "step", "state_dict", "load_state_dict")):
        return "schedule"
    is_other = not isinstance(given, (torch.amp.GradScaler, Dataset)) and not hasattr(given, "__getitem__")
    if is_other and all(callable(getattr(given, name, None)) for name in ("state_dict", "load_state_dict")):
        return "stateful"
    return None


def refusal(given: Any) -> UsageError:
    """The error for an argument that run.prepare cannot use."""
    fix = "give run.prepare models, optimizers, learning-rate schedules and a DataLoader only"
    if isinstance(given, Dataset) or (hasattr(given, "__len__") and hasattr(given, "__getitem__")):
        fix = "give a dataset to run.loader(dataset, global_batch=...)"
    elif isinstance(given, torch.amp.GradScaler):
        fix = "leave the GradScaler out, and say potluck.start(mixed_precision='fp16')"
    elif given is None:
        fix = "leave out what is None"
    return UsageError(f"run.prepare cannot use a {type(given).__name__}", fix=fix)
