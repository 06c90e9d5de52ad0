"""How a run moves: from step to committed step, from epoch to epoch, with checkpoints and orderly stops between."""

import sys
from collections.abc import Iterator
from typing import Any

from potluck.core.errors import UsageError
from potluck.core.run_folder import RunFolder
from potluck.engine.balance import Balance
from potluck.engine.checkpoint_file import plain
from potluck.engine.checkpoints import CheckpointWriter, Saved, checkpoint_name
from potluck.engine.group import Group
from potluck.engine.journal import Journal
from potluck.engine.position import DataOrder
from potluck.engine.state import EpochSoFar, TrainingState, check_same_data
from potluck.engine.step import Step, Verdict
from potluck.engine.stopping import Stopped, StopRequest
from potluck.events import types as events
from potluck.measuring.step_timer import StepTimer


class Progress:
    """The committed step, the open step, and what happens at their borders.

    A checkpoint is taken where the loader asks for the next step, not in `optimizer.step()`: by then the script has
    also moved its learning-rate schedule.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        journal: Journal,
        group: Group,
        writer: CheckpointWriter,
        timer: StepTimer,
        balance: Balance,
        checkpoint_every: int | None,
        committed: int,
        so_far: EpochSoFar,
    ) -> None:
        self.step = committed
        self.last_step = sys.maxsize
        self.open_step: Step | None = None
        self.stop = StopRequest()
        self.is_finished = False
        self.was_stopped = False
        self._folder = folder
        self._journal = journal
        self._group = group
        self._writer = writer
        self._checkpoint_every = checkpoint_every
        self._so_far = so_far
        self._saved_step = committed
        self.timer = timer
        self._balance = balance
        self._training: TrainingState | None = None
        self._order: DataOrder | None = None

    @property
    def training(self) -> TrainingState:
        """The model and optimizer, once prepared."""
        if self._training is None:
            raise UsageError("the run has no model yet", fix="call run.prepare(model, optimizer) first")
        return self._training

    @training.setter
    def training(self, training: TrainingState) -> None:
        if self._training is not None:
            raise UsageError("run.prepare was called twice", fix="prepare one model and one optimizer a run")
        self._training = training

    @property
    def order(self) -> DataOrder:
        """The order of the training data, once there is a loader."""
        if self._order is None:
            raise UsageError("the run has no data yet", fix="call run.loader(dataset, global_batch=...) first")
        return self._order

    @order.setter
    def order(self, order: DataOrder) -> None:
        if self._order is not None:
            raise UsageError("run.loader was called twice", fix="train on one dataset; use run.evaluate for others")
        self._order = order

    # Steps

    def current_step(self, caller: str) -> Step:
        """The step whose batches the script has in hand."""
        if self.open_step is None:
            raise UsageError(
                f"{caller} was called outside the loader's loop",
                fix="call it inside `for batch in loader:`, with the loader that run.loader returned",
            )
        return self.open_step

    def begin_epoch(self) -> None:
        """The loader starts: the time before it belongs to no step."""
        if not self._began:
            raise UsageError(
                "the loader is iterated outside run.epochs: nothing would be saved",
                fix="put it inside `for epoch in run.epochs(n):`",
            )
        self._drop_open_step()
        self.timer.restart()

    def begin_step(self, step: Step) -> None:
        """The micro-batches that follow belong to this step."""
        self.open_step = step

    def commit(self) -> None:
        """Apply the gradients if every worker came through; otherwise forget them, and the batch is tried again."""
        step = self.current_step("optimizer.step")
        if not step.is_last_micro_batch:
            return
        if not step.has_all_gradients or step.is_decided:
            raise UsageError(
                "optimizer.step was called without a new gradient",
                fix="call run.backward(loss), then optimizer.step(), once for every batch from the loader",
            )
        optimizer, precision = self.training.optimizer, self.training.precision
        self.timer.lap("compute_s")
        is_committed = self._group.commit()
        self.timer.lap("commit_s")
        if not is_committed:
            self.timer.spoil()
            step.verdict = Verdict.SPOILED
            precision.reset()
            optimizer.zero_grad()
            return
        step.verdict = Verdict.COMMITTED if precision.step(optimizer) else Verdict.SKIPPED
        self.timer.lap("compute_s")
        self.step += 1
        self._tell_step(step)

    def end_step(self) -> None:
        """The loader asks for the next step: the place to save or to stop."""
        self.open_step = None
        self.note_saved(self._writer.poll())
        if self._at_end_of_epoch or self.step == self.last_step:
            return  # the loop's body still has to evaluate
        if self.stop:
            self._stop_here()
        if self._checkpoint_every and self.step % self._checkpoint_every == 0:
            self.save()

    def _drop_open_step(self) -> None:
        """Forget a step that the script left in the middle: its part of a gradient belongs to no other step."""
        if self.open_step is not None and not self.open_step.is_decided:
            self.training.optimizer.zero_grad()
        self.open_step = None

    def _tell_step(self, step: Step) -> None:
        timing = self.timer.commit()
        self._balance.timed(step.samples, step.num_micro_batches, timing)
        seconds = timing.step_s
        weight, loss_sum, _ = step.total
        self._so_far.add(loss_sum=loss_sum, weight=weight, samples=step.global_batch, seconds=seconds)
        self._journal.emit(
            events.StepCommitted(
                step=self.step,
                epoch=step.epoch,
                samples=step.global_batch,
                own_samples=step.samples,
                formation=self._group.formation,
                loss=events.finite(loss_sum / weight) if weight else None,
                seconds=seconds,
                skipped=step.verdict is Verdict.SKIPPED,
                timing=timing,
            )
        )

    # Epochs

    def epochs(self, num_epochs: int, max_steps: int | None) -> Iterator[int]:
        """Epoch numbers until the last step, with a checkpoint after each and at the end."""
        order = self.order
        if num_epochs < 1 or (max_steps is not None and max_steps < 1):
            raise UsageError("there is nothing to train", fix="give run.epochs at least 1 epoch and max_steps of 1")
        plain(self.capture())  # what a checkpoint cannot hold is told now, not after the first epoch
        self.last_step = min(num_epochs * order.steps_per_epoch, max_steps or sys.maxsize)
        self._journal.emit(
            events.TrainingBegan(
                num_samples=order.num_samples,
                global_batch=order.global_batch,
                steps_per_epoch=order.steps_per_epoch,
                num_epochs=num_epochs,
                last_step=self.last_step,
            )
        )
        if self.step >= self.last_step:
            self._journal.say(f"nothing is left to train: {self.step} of {self.last_step} steps are done")
        with self.stop.listening():
            while self.step < self.last_step:
                before = self.step
                yield order.epoch_of(before)
                self._drop_open_step()  # the script may have left the loader's loop early
                if self.step == before:
                    raise UsageError(
                        "an epoch went by without one committed step",
                        fix="iterate the loader that run.loader returned inside the run.epochs loop",
                    )
                if self._at_end_of_epoch:
                    self._end_epoch()
                if self._at_end_of_epoch or self.step == self.last_step:
                    self.save()
                if self.stop and self.step < self.last_step:
                    self._stop_here()
        self.is_finished = True

    @property
    def _at_end_of_epoch(self) -> bool:
        return self.step % self.order.steps_per_epoch == 0

    def _end_epoch(self) -> None:
        so_far, self._so_far = self._so_far, EpochSoFar()
        self._journal.emit(
            events.EpochEnded(
                epoch=self.order.epoch_of(self.step - 1),
                step=self.step,
                samples=so_far.samples,
                loss=events.finite(so_far.mean_loss),
                seconds=so_far.seconds,
            )
        )
        self._journal.save_summary()

    # Checkpoints and stopping

    def save(self) -> None:
        """Begin to save the state between two steps, if this is the worker that writes."""
        if self._group.writes:
            self.note_saved(self._writer.save(self._checkpoint_name(), self.step, self.capture()))
        self._saved_step = self.step

    def save_what_is_new(self) -> None:
        """Save, at once, if the script ends training with steps that no checkpoint has."""
        if self._began and self.step > self._saved_step and self._group.writes:
            self._drop_open_step()
            self.note_saved(self._writer.save_now(self._checkpoint_name(), self.step, self.capture()))

    def _checkpoint_name(self) -> str:
        epoch = self.order.epoch_of(max(0, self.step - 1)) + 1
        return checkpoint_name(epoch, self.step, epoch_is_complete=self.step > 0 and self._at_end_of_epoch)

    @property
    def _began(self) -> bool:
        return self.last_step < sys.maxsize

    def capture(self) -> dict[str, Any]:
        """Everything that a resumed or healed worker must get back."""
        return self.training.capture(self.step, self.order, self._so_far)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from another worker's state."""
        check_same_data(state, self.order)
        self.training.restore(state)
        self.step = int(state["step"])
        self._so_far = EpochSoFar(**state["epoch_so_far"])

    def note_saved(self, saved: Saved | None) -> None:
        """Tell of a checkpoint that has reached the disk."""
        if saved is not None:
            self._journal.emit(
                events.CheckpointSaved(
                    step=saved.step, file=saved.path.name, num_bytes=saved.num_bytes, seconds=saved.seconds
                )
            )

    def _stop_here(self) -> None:
        if self._saved_step != self.step:
            self.save()
        self.note_saved(self._writer.wait())
        self.was_stopped = True
        path = self._folder.checkpoints_dir / self._checkpoint_name()
        where = f"saved {path}" if self._group.writes else "the others go on"
        self._journal.say(f"stopped after step {self.step} of {self.last_step}; {where}")
        raise Stopped(self.stop.exit_code)
