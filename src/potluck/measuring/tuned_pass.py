"""A pass of a model as a tuning wants it, and a trial of one that leaves no trace."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from potluck.measuring.tuning import Tuning
from potluck.measuring.tuning_trials import Numbers, Trial

_IMAGE_DIMENSIONS = 4


def tuned_inputs(
    tuning: Tuning, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Images with their channels last in memory, if the tuning says so."""
    if not tuning.channels_last:
        return args, kwargs

    def convert(one: Any) -> Any:
        return one.contiguous(memory_format=torch.channels_last) if is_image(one) else one

    changed: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(convert, (args, kwargs))
    return changed


def has_images(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether any argument of a pass is a batch of images."""
    return any(is_image(one) for one in pytree.tree_leaves((args, kwargs)))


def is_image(given: Any) -> bool:
    """Whether this is a batch of images: [samples, channels, height, width]."""
    return isinstance(given, Tensor) and given.dim() == _IMAGE_DIMENSIONS and given.is_floating_point()


def part_of(given: Any, part: float) -> Any:
    """The first samples of every tensor, where all have as many samples; else all of them."""
    lengths = {len(one) for one in pytree.tree_leaves(given) if isinstance(one, Tensor) and one.dim()}
    if part >= 1.0 or len(lengths) != 1:
        return given
    kept = max(1, round(part * lengths.pop()))
    return pytree.tree_map(lambda one: one[:kept] if isinstance(one, Tensor) and one.dim() else one, given)


def make_trial(
    module: nn.Module,
    forward: Callable[..., Any],
    *,
    device: torch.device,
    forward_context: Callable[[], AbstractContextManager[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Trial:
    """A pass on this batch that leaves no trace: parameters, gradients, buffers and random generators stay.

    `forward`: the module, or a function that calls it.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    devices = [] if device.type == "cpu" else [device]

    def trial(tuning: Tuning) -> Numbers:
        with _as_it_was(module), torch.random.fork_rng(devices, device_type=device.type):
            with forward_context():
                changed_args, changed_kwargs = tuned_inputs(tuning, args, kwargs)
                output = forward(*changed_args, **changed_kwargs)
            outputs = [one for one in pytree.tree_leaves(output) if isinstance(one, Tensor) and one.requires_grad]
            torch.manual_seed(0)
            directions = [
                torch.randn(one.shape, dtype=one.dtype, device=one.device) for one in outputs
            ]  # ones would mostly cancel out
            gradients = torch.autograd.grad(outputs, parameters, directions, allow_unused=True)
        if devices:
            torch.accelerator.synchronize(device)
        used: list[Tensor | None] = list(gradients)
        return Numbers(outputs, [gradient for gradient in used if gradient is not None])

    return trial


@contextmanager
def _as_it_was(module: nn.Module) -> Iterator[None]:
    """Afterwards buffers, and numbers that a forward counts up in its modules, are what they were."""
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    plain = [
        (one, {name: value for name, value in vars(one).items() if isinstance(value, (int, float, str, Tensor))})
        for one in module.modules()
    ]
    try:
        yield
    finally:
        for buffer, before in buffers:
            buffer.copy_(before)
        for one, values in plain:
            vars(one).update(values)
