"""Changes that a step makes before its commit vote, and how they are undone.

With several optimizers a later backward pass of a step needs what an earlier optimizer has changed: the generator's
loss is computed with the discriminator's new parameters. So optimizers step at once, and the workers hold the commit
vote when the script is done with the batch. If the step is not committed, the state from before it is restored.
"""

from typing import Any

import torch
from torch import Tensor

from potluck.engine.checkpoints.state import TrainingState, parameters_of


class Provisional:
    """Backups of what the open step's optimizers have changed."""

    def __init__(self, training: TrainingState) -> None:
        self._training = training
        self._parameters: list[tuple[Tensor, Tensor]] = []
        self._optimizers: dict[int, dict[str, Any]] = {}
        self._schedulers: list[dict[str, Any]] = []
        self._settings: list[dict[str, Any]] = []

    def before(self, index: int) -> None:
        """Back up what the optimizer is about to change, unless it has already stepped in this step."""
        if not self._optimizers:
            self._schedulers = [_copied(scheduler.state_dict()) for scheduler in self._training.schedulers]
            self._settings = [_settings(group) for group in self._groups()]  # a schedule may change any learning rate
        if index in self._optimizers:
            return
        optimizer = self._training.optimizers[index]
        self._optimizers[index] = _copied(optimizer.state_dict())
        self._parameters += [(parameter, parameter.detach().clone()) for parameter in parameters_of(optimizer)]

    def keep(self) -> None:
        """Drop the backups: the step is committed."""
        self._parameters, self._optimizers, self._schedulers, self._settings = [], {}, [], []

    def undo(self) -> None:
        """Restore the backups: the step is not committed."""
        with torch.no_grad():
            for parameter, value in self._parameters:
                parameter.copy_(value)
        for index, state in self._optimizers.items():
            self._training.optimizers[index].load_state_dict(state)
        for group, settings in zip(self._groups(), self._settings, strict=False):
            group.update(settings)
        for scheduler, state in zip(self._training.schedulers, self._schedulers, strict=False):
            scheduler.load_state_dict(state)
        self.keep()

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._training.optimizers for group in optimizer.param_groups]


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) for name, value in group.items() if name != "params"}


def _copied(state: Any) -> Any:
    match state:
        case Tensor():
            return state.detach().clone()
        case dict():
            return {key: _copied(value) for key, value in state.items()}
        case list() | tuple():
            return type(state)(_copied(value) for value in state)
    return state
