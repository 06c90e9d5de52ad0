"""Real training steps of a built-in model, at any batch size, for a trial of this machine."""

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

from potluck.core.cards import short_name
from potluck.core.environment import read_environment
from potluck.core.errors import MeasureError
from potluck.core.printable import printable
from potluck.core.quantities import size_bytes
from potluck.core.run_options import TrainOptions
from potluck.core.version import __version__
from potluck.machine.hardware import read_processor
from potluck.measuring.coding_speed import measure_coding
from potluck.measuring.compute_fit import profile_from_trial
from potluck.measuring.memory import find_memory_cap, free_memory_bytes, is_out_of_memory
from potluck.measuring.profile_store import StoredProfile, find_profile, newest_overhead_s, save_profile
from potluck.measuring.trial import run_trial, sizes_up_to
from potluck.measuring.tuned_pass import tuned_inputs
from potluck.measuring.tuning import BF16, Tuning
from potluck.measuring.tuning_store import keep_tuning, tuning_file
from potluck.workloads.datasets import DataOptions, load_dataset
from potluck.workloads.model_trials import ModelTrials
from potluck.workloads.models import build_model, find_model

_QUICK_S = 3.0
_TUNED_WITH = 32  # samples
Tune = Callable[[int, bool], Tuning]
_AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16}


def measure_and_keep(
    home: Path,
    machine: str,
    *,
    model: str,
    size: str,
    precision: str,
    device: torch.device,
    largest: int,
    budget_s: float,
    memory_limit: int | None = None,
    is_tuning: bool = True,
    compiles: bool = False,
) -> StoredProfile:
    """Measure a model's steps on this device, up to a batch of `largest`, in about budget_s; save the profile.

    `is_tuning`: first find the fastest way to do the same maths, unless POTLUCK_TUNING=0; `compiles`: with
    torch.compile among the ways.
    """
    step, gradient_bytes, tune = training_step(model, size, precision=precision, device=device, largest=largest)
    free_bytes = None if device.type != "cpu" else lambda: free_memory_bytes(memory_limit)
    cap = find_memory_cap(step, largest, free_bytes=free_bytes)
    may_tune = is_tuning and read_environment().is_tuning
    tuning = _tuned(tune, largest if cap is None else cap // 2, compiles=compiles) if may_tune else None
    trial = run_trial(step, sizes_up_to(largest if cap is None else cap), budget_s)
    before = find_profile(home, machine, str(device), f"{model}-{size}", precision)
    stored = StoredProfile(
        machine=machine,
        device=str(device),
        model=f"{model}-{size}",
        precision=precision,
        compute=profile_from_trial(trial, cap),
        gradient_bytes=gradient_bytes,
        link=None if before is None else before.link,
        peers={} if before is None else before.peers,
        coding_factor=measure_coding(),
        ring=None if before is None else before.ring,
        trial={batch: statistics.median(times) for batch, times in trial.items()},
        measured_at=time.time(),
        versions={"potluck": __version__, "torch": torch.__version__},
        tuning="" if tuning is None else tuning.all_words,
        overhead_s=newest_overhead_s(home, machine),
        specification=_specification(device),
    )
    save_profile(home, stored)
    if tuning is not None:
        path = tuning_file(home, machine, str(device), stored.model, precision)
        keep_tuning(path, torch.__version__, tuning)
    return stored


def _specification(device: torch.device) -> str:
    """What the device is, for questions about machines like it."""
    if device.type != "cpu":
        name = getattr(torch.get_device_module(device), "get_device_name", None)
        return "" if name is None else short_name(name(device))
    processor = read_processor()
    return f"{processor.usable_cores:g}-core {printable(processor.name)}"


def profile_if_wanted(settings: TrainOptions, home: Path, machine: str, device: torch.device) -> None:
    """Before a run, measure this machine if settings ask for it and no profile exists; with a memory limit, always."""
    if not settings.enable_profiling and settings.memory_limit is None:
        return
    assert settings.global_batch is not None
    size = settings.model_size or find_model(settings.model).default_size
    limit = None if settings.memory_limit is None else size_bytes(settings.memory_limit)
    known = find_profile(home, machine, str(device), f"{settings.model}-{size}", settings.mixed_precision)
    if known is None or limit is not None:
        measure_and_keep(
            home,
            machine,
            model=settings.model,
            size=size,
            precision=settings.mixed_precision,
            device=device,
            largest=settings.global_batch,
            budget_s=_QUICK_S,
            memory_limit=limit,
            is_tuning=settings.tuning,
        )


def training_step(
    model: str, size: str, *, precision: str, device: torch.device, largest: int
) -> tuple[Callable[[int], None], int, Tune]:
    """A function that trains one step on so many samples and waits for the device; the bytes of the gradients; a tuner.

    The last one finds the fastest way to do the same maths, with so many samples; later steps run so.
    """
    spec = find_model(model)
    options = DataOptions(data_dir=Path("data"), num_samples=largest, seed=0)
    splits = load_dataset(f"synthetic_{spec.reads}", options)
    torch.manual_seed(0)
    network = _placed(build_model(model, size, splits), f"{model}-{size}", device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9)
    samples = spec.task.view(splits.train)
    batch = default_collate([samples[index] for index in range(largest)])  # on the CPU: all of it may fit nowhere else
    tuning, called = Tuning(), network

    def context(wanted: str = precision) -> AbstractContextManager[Any]:
        return torch.autocast(device.type, _AUTOCAST[wanted]) if wanted in _AUTOCAST else nullcontext()

    def tune(num_samples: int, compiles: bool) -> Tuning:
        nonlocal tuning, called
        trials = ModelTrials(spec.task, network, device, tuple(column[:num_samples].to(device) for column in batch))
        found = trials.find(context, compiles=compiles)
        if precision == "no":
            found = replace(found, gains={**found.gains, BF16: trials.compare(context, lambda: context("bf16"))})
        tuning, called = found, trials.compiled if trials.compiled is not None and found.is_compiled else network
        return found

    def step(num_samples: int) -> None:
        columns, _ = tuned_inputs(tuning, tuple(column[:num_samples].to(device) for column in batch), {})
        with context():
            loss = spec.task.loss(called, *columns)[0]
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)

    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return step, sum(parameter.numel() * parameter.element_size() for parameter in trained), tune


def _tuned(tune: Tune, most: int, *, compiles: bool) -> Tuning | None:
    """The tuning, found with at most so many samples; None if the memory is too small for trials."""
    try:
        return tune(max(1, min(_TUNED_WITH, most)), compiles)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None


def _placed(network: nn.Module, name: str, device: torch.device) -> nn.Module:
    try:
        return network.to(device)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise MeasureError(
            f"the parameters of {name} do not fit into the memory of {device}",
            fix="choose a smaller --model-size, or --device cpu",
        ) from error
