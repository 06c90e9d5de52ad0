"""The tuning of a run's model on this machine: taken from its profile, or found on the first training batch."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from potluck.measuring.tuned_pass import has_images, make_trial, tuned_inputs
from potluck.measuring.tuning import Tuning
from potluck.measuring.tuning_trials import find_tuning

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
