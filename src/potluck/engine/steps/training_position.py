"""The training position: the committed step, its epoch, and the step after which training ends."""

import sys
from typing import Any

from potluck.core.errors import UsageError
from potluck.engine.checkpoints.state import EpochSoFar, check_same_data, epoch_of_state
from potluck.engine.order.position import DataOrder


class TrainingPosition:
    """The committed step, and what it means once the data and the number of epochs are known."""

    def __init__(self, restored: dict[str, Any] | None) -> None:
        self.step = 0 if restored is None else int(restored["step"])
        self.ahead = 0
        """Local steps of the open round: they count when the round is committed."""
        self.so_far = EpochSoFar() if restored is None else EpochSoFar(**restored["epoch_so_far"])
        self.num_epochs: int | None = None
        """How many epochs run.epochs was asked for; None before it was called."""
        self._max_steps: int | None = None
        self._restored = restored
        self._order: DataOrder | None = None

    @property
    def order(self) -> DataOrder:
        """The order of the training data, once there is a loader."""
        if self._order is None:
            raise UsageError("the run has no data yet", fix="call run.loader(dataset, global_batch=...) first")
        return self._order

    @property
    def has_order(self) -> bool:
        return self._order is not None

    def use(self, order: DataOrder) -> None:
        """Take over a new loader's order: it continues that of the previous loader, or must fit the checkpoint."""
        if self._order is not None:
            order.left_out = self._order.left_out
        elif self._restored is not None:
            check_same_data(self._restored, order)
            order.left_out = int(self._restored.get("left_out", 0))
        self._order = order

    def go_on_after(self, step: int) -> None:
        """Begin after `step` steps that the script has restored; what a resumed run has restored counts instead."""
        if self.has_begun:
            raise UsageError("run.go_on_after was called after training began", fix="call it before run.epochs")
        if self._restored is None:
            self.step = step

    def begin(self, num_epochs: int, max_steps: int | None) -> None:
        """Set the length of training, when the script calls run.epochs."""
        if num_epochs < 1 or (max_steps is not None and max_steps < 1):
            raise UsageError("there is nothing to train", fix="give run.epochs at least 1 epoch and max_steps of 1")
        self.num_epochs, self._max_steps = num_epochs, max_steps

    @property
    def has_begun(self) -> bool:
        """Whether run.epochs was called."""
        return self.num_epochs is not None

    @property
    def epoch(self) -> int:
        """The current epoch; for a resumed run it is known before the script makes its loader."""
        if self._order is not None:
            return self._order.epoch_of(self.step)
        return 0 if self._restored is None else epoch_of_state(self._restored)

    @property
    def last_step(self) -> int:
        """The number of committed steps after which training ends; sys.maxsize until that is known."""
        if self.num_epochs is None or self._order is None:
            return sys.maxsize
        of_all_epochs = self.num_epochs * self._order.steps_per_epoch - self._order.left_out
        return min(of_all_epochs, self._max_steps or sys.maxsize)

    @property
    def begins_epoch(self) -> bool:
        """Whether the next step begins an epoch."""
        return self.order.begins_epoch(self.step)

    def restore(self, state: dict[str, Any]) -> None:
        """Take over the position of another worker's state."""
        self.step, self.ahead = int(state["step"]), 0
        self.order.left_out = int(state["left_out"])
        self.so_far = EpochSoFar(**state["epoch_so_far"])
