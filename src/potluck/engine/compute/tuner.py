"""The tuning of a run's model on this machine: taken from its profile, or found on the first training batch."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from potluck.core.words import TUNED
from potluck.engine.compute.fingerprint import gradient_bytes
from potluck.measuring import compiled
from potluck.measuring.memory import free_memory_bytes
from potluck.measuring.tuned_pass import has_images, make_trial, part_of, tuned_inputs
from potluck.measuring.tuning import Tuning
from potluck.measuring.tuning_trials import Trial, find_tuning

_MOST_TEXT = 200
_MOST_HELD = 1 << 30  # bytes of parameters without a gradient, which a forward may move
_GRADIENTS = 6  # as many times the gradients' bytes must be free: two sets are compared while a third is made


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
        self._will_compile = False

    def settle(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take the stored tuning, or find one with this batch; once, after training has begun."""
        if self._is_settled or not self._is_training():
            return
        self._is_settled = True
        stored = self._recall()
        if stored is None:
            stored = self._find(module, args, kwargs)
        else:
            stored.apply()
        self.tuning = stored
        if stored.is_compiled:
            compiled.compile_in_place(module)
            self._will_compile = True
        if stored.words:
            self._say(f"{TUNED}: {stored.words}")

    def _find(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tuning:
        def trial_with(part: float) -> Trial:
            some_args, some_kwargs = part_of((args, kwargs), part)
            return make_trial(
                module,
                module,
                device=self._device,
                forward_context=self._forward_context,
                args=some_args,
                kwargs=some_kwargs,
            )

        is_on_cpu = self._device.type == "cpu"
        held = sum(one.nbytes for one in module.parameters() if not one.requires_grad)
        if held > _MOST_HELD or (is_on_cpu and free_memory_bytes() < _GRADIENTS * gradient_bytes(module) + held):
            self._say("not tuned, because trials would have to hold copies of too large a model")
            return Tuning()
        try:
            found = find_tuning(trial_with, has_images=has_images(args, kwargs), is_on_cpu=is_on_cpu)
        except Exception as error:  # noqa: BLE001  any model may have a pass that cannot be tried
            self._say(f"not tuned, because a trial pass failed: {_line(error)}")
            return Tuning()
        self._keep(found)
        return found

    def inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a pass as the tuning wants them."""
        changed = tuned_inputs(self.tuning, args, kwargs)
        if self._will_compile:
            compiled.mark_samples(*changed)
        return changed

    def passed(self) -> None:
        """A training pass has gone well: whatever is to be compiled has been compiled in it."""
        if self._will_compile:
            self._will_compile = False
            compiled.settle()

    def give_up(self, module: nn.Module, error: Exception) -> None:
        """A pass has failed as it was tuned, and not without: train without from now on."""
        compiled.undo(module)
        ways = ["channels_last"] * self.tuning.channels_last + ["compile"] * self.tuning.is_compiled
        self.tuning = Tuning(keeps_memory=self.tuning.keeps_memory, gains=self.tuning.gains)
        self._will_compile = False
        self._keep(self.tuning)
        self._say(f"{' and '.join(ways)} is off from now on: a pass failed with it: {_line(error)}")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:_MOST_TEXT]
