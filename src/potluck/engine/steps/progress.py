"""The progress of a run through steps and epochs, with checkpoints and orderly stops between steps."""

from collections.abc import Iterator
from typing import Any

from torch.optim import Optimizer

from potluck.core.errors import UsageError
from potluck.engine.checkpoints.checkpoint_file import plain
from potluck.engine.checkpoints.state import TrainingState, check_same_data
from potluck.engine.group.protocol import Total
from potluck.engine.order.position import DataOrder
from potluck.engine.steps.applying import Applying
from potluck.engine.steps.orderly_stop import OrderlyStop
from potluck.engine.steps.parts import RunParts
from potluck.engine.steps.progress_events import ProgressEvents
from potluck.engine.steps.provisional import Provisional
from potluck.engine.steps.saving import Saving
from potluck.engine.steps.step import Step, StepOutcome
from potluck.engine.steps.training_position import TrainingPosition


class Progress:
    """The committed step, the open step, and what happens between steps.

    A checkpoint is saved when the loader asks for the next step, not in `optimizer.step()`: by then the script has
    also moved its learning-rate schedule.
    """

    def __init__(self, parts: RunParts, checkpoint_every: int | None) -> None:
        self.position = TrainingPosition(parts.restored)
        self.training = TrainingState(parts.precision)
        self.timer = parts.timer
        self.open_step: Step | None = None
        self.must_leave_epoch = False
        self.has_left_loop = False
        self.is_finished = False
        self.saving = Saving(parts, self.position, self.capture, self.training.with_small_frozen)
        provisional = Provisional(self.training)
        self.stopping = OrderlyStop(parts, self.position, self.saving, provisional.undo)
        self._applying = Applying(self.training, provisional, parts.group, parts.timer, self.stopping.deadline)
        self.gradients = self._applying.gradients
        self._events = ProgressEvents(parts, self.position)
        self._parts = parts
        self._checkpoint_every = checkpoint_every
        self._was_spoiled = False

    # Steps

    def current_step(self, caller: str) -> Step:
        """The open step; raises UsageError outside the loader's loop."""
        if self.open_step is None:
            raise UsageError(
                f"{caller} was called outside the loader's loop",
                fix="call it inside `for batch in loader:`, with the loader that run.loader returned",
            )
        return self.open_step

    def begin_epoch(self) -> None:
        """Called when the loader's loop starts: the time before counts for no step."""
        if not self.position.has_begun:
            raise UsageError(
                "the loader is iterated outside run.epochs: nothing would be saved",
                fix="put it inside `for epoch in run.epochs(n):`",
            )
        self._end_open_step()
        self.timer.restart()
        self.stopping.deadline.allow()

    def begin_step(self, step: Step) -> None:
        """Open a step: the following micro-batches belong to it."""
        self.open_step = step
        self.has_left_loop = False

    def apply(self, optimizer: Optimizer) -> None:
        """Handle the script's optimizer.step()."""
        step = self.current_step("optimizer.step")
        was_decided = step.is_decided
        self._applying.apply(step, optimizer)
        if not was_decided:
            self._note_verdict(step)

    def settle_step(self) -> None:
        """Hold the commit vote if it is still due: the script is done with the batch, or needs the outcome."""
        if self.open_step is not None and not self.open_step.is_decided:
            self._applying.settle(self.open_step)
            self._note_verdict(self.open_step)

    def settled(self) -> int:
        """The number of steps so far; if the script has left the loop, after the open step's commit vote."""
        if self.has_left_loop:
            self.settle_step()
        return self.position.step + self.position.ahead

    def _note_verdict(self, step: Step) -> None:
        position, group = self.position, self._parts.group
        if step.verdict is StepOutcome.LOCAL:
            position.ahead += 1
            self._events.step_committed(step)
        elif step.counts:
            # Steps of a round that this worker did not make, because it was healed or its island had lost a worker.
            missed = group.committed.num_steps - 1 - position.ahead
            self.training.move_schedules(missed, at=position.step + position.ahead)
            position.step, position.ahead = position.step + group.committed.num_steps, 0
            self._events.step_committed(step)
        elif step.is_decided:
            self._was_spoiled = True

    def note_total(self, step: Step, total: Total) -> None:
        """Record the sums over all workers; if others have left the epoch early, this worker leaves it too."""
        step.note_total(total)
        if total.left_out > self.position.order.left_out:
            self.must_leave_epoch = True

    def end_step(self) -> None:
        """Called when the loader asks for the next step: save or stop, if that is due."""
        if self.open_step is not None:
            self._events.step_ended(self.open_step)
        self.open_step = None
        self.saving.look()
        step, is_in_round = self.position.step, self.position.ahead > 0 or self._parts.group.round.is_open
        if not is_in_round and (self.position.begins_epoch or step == self.position.last_step):
            return  # the epoch loop's body may still evaluate; `epochs` saves or stops after that
        if self.stopping.request:
            self._parts.group.round.leave()
            self.stopping.stop_here()
        if not is_in_round and (
            self.is_checkpoint_due(step, self._parts.group.committed.num_steps) or self.saving.is_to_be_tried_again
        ):
            self.saving.save()
        self.stopping.deadline.allow()

    def is_checkpoint_due(self, step: int, num_steps: int = 1) -> bool:
        """Whether a multiple of checkpoint_every is among the last `num_steps` of so many committed steps."""
        every = self._checkpoint_every
        return every is not None and step // every > (step - num_steps) // every

    def _end_open_step(self) -> None:
        """End the open step after the script has left the loop; drop the gradients of an undecided step."""
        self.settle_step()
        if self.open_step is not None and not self.open_step.is_decided:
            self.gradients.restore()
        self.open_step = None

    # Epochs

    def use(self, order: DataOrder) -> None:
        """Take over the data order of a new loader."""
        is_first = not self.position.has_order
        self.position.use(order)
        if is_first and self.position.has_begun:
            self._begin_training()

    def epochs(self, num_epochs: int, max_steps: int | None) -> Iterator[int]:
        """Epoch numbers until the last step, with a checkpoint after each epoch and at the end."""
        position = self.position
        position.begin(num_epochs, max_steps)
        if position.has_order:
            self._begin_training()
        with self.stopping.listening():
            while position.step < position.last_step:
                before, self._was_spoiled = position.step, False
                yield position.epoch
                self._end_open_step()
                self._finish_epoch(before)
                if self.stopping.request and position.step < position.last_step:
                    self.stopping.stop_here()
        self.is_finished = True

    def _begin_training(self) -> None:
        plain(self.capture())  # raises now, not after the first epoch, if a checkpoint cannot hold the state
        self._parts.balance.last_step = self.position.last_step
        self._events.training_began()

    def _finish_epoch(self, before: int) -> None:
        """Called after the epoch loop's body: end the epoch, and save a checkpoint."""
        position = self.position
        if position.step == before and not self._was_spoiled:
            raise UsageError(
                "an epoch went by without one committed step",
                fix="iterate the loader that run.loader returned inside the run.epochs loop",
            )
        if position.step == before and not self.must_leave_epoch:
            return  # the only step was spoiled: the epoch is still to be trained
        left_out = self._leave_epoch()
        if position.begins_epoch:
            self._events.epoch_ended(left_out)
        if position.begins_epoch or position.step == position.last_step:
            self.saving.save()

    def _leave_epoch(self) -> int:
        """If the script has left the loader's loop early, skip the rest of the epoch; return the number of batches."""
        self.must_leave_epoch = False
        position = self.position
        if position.ahead:
            raise UsageError(
                "the script left the loader's loop inside a round: the samples of a round cannot be left out",
                fix="end training with run.epochs(..., max_steps=...), or train with --exchange int4",
            )
        if position.begins_epoch or position.step >= position.last_step:
            return 0
        epoch = position.epoch
        left_out = position.order.leave_epoch(position.step)
        self._events.epoch_left(epoch, left_out)
        return left_out

    # State

    def save_what_is_new(self) -> None:
        """Save, and wait, if the script ends training with steps that no checkpoint has."""
        if self.position.has_begun and self.position.has_order:
            self._end_open_step()
            self.saving.save_at_the_end()

    def capture(self) -> dict[str, Any]:
        """All state that a resumed or healed worker needs."""
        return self.training.capture(self.position.step, self.position.order, self.position.so_far)

    def restore(self, state: dict[str, Any]) -> None:
        """Replace this worker's state by another worker's."""
        check_same_data(state, self.position.order)
        with self.stopping.deadline.changing_state():
            self._applying.provisional.keep()  # backups of the replaced state must not be restored over the new one
            self.training.restore(state)
            self.position.restore(state)
            self.must_leave_epoch = False
