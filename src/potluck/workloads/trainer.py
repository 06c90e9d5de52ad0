"""The built-in trainer: what a user would write with their own model, on the public API only."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LRScheduler

import potluck
from potluck.core.errors import SettingsError
from potluck.core.run_options import TrainOptions
from potluck.core.settings import settings_to_record
from potluck.workloads.datasets import DataOptions, load_dataset
from potluck.workloads.models import build_model, find_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DEFAULT_BATCH = 64
DEFAULT_LEARNING_RATES = {"sgd": 0.05, "adam": 1e-3, "adamw": 1e-3}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a finished training run."""

    run: str
    folder: Path
    scores: dict[str, float]


def complete(settings: TrainOptions, *, data_dir: Path, num_workers: int = 1) -> TrainOptions:
    """The settings with a default for every option that was left open, so that run.yaml repeats the run."""
    spec = find_model(settings.model)
    return settings.but(
        model_size=settings.model_size or spec.default_size,
        dataset=settings.dataset or f"synthetic_{spec.reads}",
        data_dir=settings.data_dir or data_dir,
        # Learning depends on the global batch, so run.yaml records it and not the batch of a worker.
        global_batch=settings.global_batch or (settings.batch_size or 0) * num_workers or DEFAULT_BATCH,
        batch_size=None,
        learning_rate=settings.learning_rate or DEFAULT_LEARNING_RATES[settings.optimizer],
    )


def train(settings: TrainOptions, *, runs_dir: Path, watch: "Callable[..., None] | None" = None) -> Outcome:
    """Train a built-in model as the completed settings say, evaluating after every epoch."""
    assert settings.dataset is not None
    assert settings.data_dir is not None
    assert settings.global_batch is not None
    spec = find_model(settings.model)
    splits = load_dataset(
        settings.dataset,
        DataOptions(data_dir=settings.data_dir, num_samples=settings.num_samples, seed=settings.seed),
    )
    torch.manual_seed(settings.seed)
    model: nn.Module = build_model(settings.model, settings.model_size, splits)
    optimizer: Optimizer = make_optimizer(settings, model.parameters())
    train_set, held_out = spec.task.view(splits.train), spec.task.view(splits.held_out)
    num_samples = len(train_set)  # type: ignore[arg-type]
    schedule: LRScheduler = make_schedule(settings, optimizer, num_samples)
    with potluck.start(
        settings.experiment_name,
        **settings.for_start(),
        runs_dir=runs_dir,
        profile_name=f"{settings.model}-{settings.model_size}",
        settings=settings_to_record(settings),
        watch=watch,
    ) as run:
        prepared, stepper, scheduler = run.prepare(model, optimizer, schedule)
        check_learning(settings, optimizer)
        loader = run.loader(train_set, global_batch=settings.global_batch, num_workers=settings.loader_workers)
        scores: dict[str, float] = {}
        for _ in run.epochs(settings.epochs, max_steps=settings.max_steps):
            for batch in loader:
                loss, count = spec.task.loss(prepared, *batch)
                run.backward(loss, count=count)
                stepper.step()
                scheduler.step()
                stepper.zero_grad()
            scores = run.evaluate(held_out, lambda *batch: spec.task.measure(prepared, *batch))
        return Outcome(run=run.name, folder=run.folder.path, scores=scores)


def make_optimizer(settings: TrainOptions, parameters: "Iterable[nn.Parameter]") -> Optimizer:
    """The optimizer that the settings name."""
    assert settings.learning_rate is not None
    options: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    match settings.optimizer:
        case "sgd":
            return torch.optim.SGD(parameters, momentum=settings.momentum, **options)
        case "adam":
            return torch.optim.Adam(parameters, **options)
        case "adamw":
            return torch.optim.AdamW(parameters, **options)


def check_learning(settings: TrainOptions, optimizer: Optimizer) -> None:
    """Refuse settings that differ from those of a restored optimizer: it would ignore them."""
    group = optimizer.param_groups[0]
    restored = {"learning_rate": group["initial_lr"], "weight_decay": group["weight_decay"]}
    if "momentum" in group:
        restored["momentum"] = group["momentum"]
    for name, value in restored.items():
        if value != getattr(settings, name):
            raise SettingsError(
                f"{name} is {value} in the checkpoint, not {getattr(settings, name)}",
                fix=f"add --{name.replace('_', '-')} {value}, or train from the start",
            )


def make_schedule(settings: TrainOptions, optimizer: Optimizer, num_samples: int) -> LRScheduler:
    """The schedule of the learning rate over committed steps."""
    assert settings.global_batch is not None
    if settings.lr_schedule == "constant":
        return ConstantLR(optimizer, factor=1.0)
    steps = settings.epochs * -(-num_samples // settings.global_batch)
    return CosineAnnealingLR(optimizer, T_max=min(steps, settings.max_steps or steps))
