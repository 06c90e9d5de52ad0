"""A pass of a model as a tuning wants it, and a trial of one that leaves no trace."""

import copy
import random
import sys
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
    """A pass on a copy of this batch that leaves no trace: parameters, gradients, buffers and random generators stay.

    `forward`: the module, or a function that calls it.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    devices = [] if device.type == "cpu" else [device]

    def trial(tuning: Tuning) -> Numbers:
        with _as_it_was(module), torch.random.fork_rng(devices, device_type=device.type):
            with forward_context():
                changed_args, changed_kwargs = tuned_inputs(tuning, *_copied((args, kwargs)))
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


def _copied(given: Any) -> Any:
    """Containers and tensors that a forward may change."""

    def copied(one: Any) -> Any:
        return one.detach().clone().requires_grad_(one.requires_grad) if isinstance(one, Tensor) else one

    return pytree.tree_map(copied, given)


@contextmanager
def _as_it_was(module: nn.Module) -> Iterator[None]:
    """Afterwards buffers, parameters without a gradient, and what a forward changes in its modules are what they were.

    Also the random generators of Python and numpy.
    """
    kept = [*module.buffers(), *(one for one in module.parameters() if not one.requires_grad)]
    values = [(one, one.detach().clone()) for one in kept]
    plain = [
        (one, {name: value for name, value in vars(one).items() if isinstance(value, (int, float, str, Tensor))})
        for one in module.modules()
    ]
    containers = [
        (value, copy.copy(value))
        for one in module.modules()
        for value in vars(one).values()
        if isinstance(value, (dict, list, set))
    ]
    random_state, numpy = random.getstate(), sys.modules.get("numpy")
    numpy_state = None if numpy is None else numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(random_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
        for value, before in containers:
            value.clear()
            (value.extend if isinstance(value, list) else value.update)(before)
        for one, attributes in plain:
            vars(one).update(attributes)
        with torch.no_grad():
            for tensor, numbers in values:
                tensor.copy_(numbers)
