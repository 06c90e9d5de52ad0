"""The tuning of a run's model on this machine: taken from its profile, or found on the first training batch."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from potluck.measuring.tuning import Tuning
from potluck.measuring.tuning_trials import Numbers, Trial, find_tuning

_IMAGE_DIMENSIONS = 4
_MOST_TEXT = 200


class Tuner:
    """Decides, before the first training pass of a model, how its passes run; `inputs` then applies it."""

    def __init__(
        self,
        device: torch.device,
        forward_context: Callable[[], AbstractContextManager[Any]],
        *,
        recall: Callable[[], Tuning | None],
        keep: Callable[[Tuning], None],
        say: Callable[[str], None],
        is_training: Callable[[], bool] = lambda: True,
        is_on: bool = True,
    ) -> None:
        self.tuning = Tuning()
        self._device = device
        self._forward_context = forward_context
        self._recall = recall
        self._keep = keep
        self._say = say
        self._is_training = is_training
        self._is_settled = not is_on

    def settle(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take the stored tuning, or find one with this batch; once, after training has begun."""
        if self._is_settled or not self._is_training():
            return
        self._is_settled = True
        stored = self._recall()
        if stored is not None:
            stored.apply()
            self.tuning = stored
            return
        trial = make_trial(
            module, module, device=self._device, forward_context=self._forward_context, args=args, kwargs=kwargs
        )
        try:
            found = find_tuning(trial, has_images=has_images(args, kwargs), is_on_cpu=self._device.type == "cpu")
        except Exception as error:  # noqa: BLE001  any model may have a pass that cannot be tried
            self._say(f"not tuned, because a trial pass failed: {_line(error)}")
            return
        self.tuning = found
        self._keep(found)
        if found.words:
            self._say(f"tuned for this machine: {found.words}")

    def inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a pass as the tuning wants them."""
        return tuned_inputs(self.tuning, args, kwargs)

    def give_up(self, error: Exception) -> None:
        """A pass has failed with channels_last and not without: train without it from now on."""
        self.tuning = Tuning(keeps_memory=self.tuning.keeps_memory, gains=self.tuning.gains)
        self._keep(self.tuning)
        self._say(f"channels_last is off from now on: a pass failed with it: {_line(error)}")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:_MOST_TEXT]


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
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    devices = [] if device.type == "cpu" else [device]

    def trial(tuning: Tuning) -> Numbers:
        try:
            with torch.random.fork_rng(devices, device_type=device.type):
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
        finally:
            for buffer, before in buffers:
                buffer.copy_(before)
        used: list[Tensor | None] = list(gradients)
        return Numbers(outputs, [gradient for gradient in used if gradient is not None])

    return trial
