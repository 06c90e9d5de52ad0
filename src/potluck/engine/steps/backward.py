"""`run.backward`: weights the local gradient, and sums it over micro-batches and over workers."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from torch import Tensor

from potluck.engine.group.protocol import Announcement
from potluck.engine.steps.open_gradients import as_mean, weigh
from potluck.engine.steps.parts import RunParts
from potluck.engine.steps.progress import Progress
from potluck.engine.steps.step import Step


class BackwardPass:
    """Adds the gradient of the current micro-batch to the step's gradient."""

    def __init__(
        self, parts: RunParts, progress: Progress, noticing: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._progress = progress
        self._group = parts.group
        self._precision = parts.precision
        self._noticing = noticing

    def __call__(self, loss: Tensor, count: float | Tensor | None) -> None:
        """Run backward; after a step's last micro-batch every worker has the mean gradient over the global batch."""
        progress = self._progress
        step = progress.current_step("run.backward")
        loss, count = as_mean(loss, count)
        begins_sum, begins_step = step.begins_sum, step.is_fresh
        weight = step.add(loss, count)
        weighted = self._precision.scale(loss * weight)
        if step.is_last_micro_batch:
            self._announce(step)
        if begins_sum:
            progress.gradients.begin_sum(begins_step=begins_step)
        else:
            progress.gradients.continue_sum()
        with self._noticing():
            weighted.backward()  # type: ignore[no-untyped-call]
        if step.is_last_micro_batch:
            self._complete(step)
        else:
            progress.gradients.set_aside()

    def _announce(self, step: Step) -> None:
        order, done = self._progress.position.order, step.number + 1
        part = self._group.announce(
            Announcement(
                step.weight,
                step.loss_sum,
                self._precision.loss_scale,
                is_last=bool(self._progress.stopping.request),
                left_out=order.left_out,
                # A checkpoint, or the end of an epoch with an evaluation, takes longer on one worker than on others.
                pauses=order.begins_epoch(done) or self._progress.is_checkpoint_due(done),
            )
        )
        if part.step != step.number:
            step.move(part.step, order.epoch_of(part.step), order.batch_of(part.step))

    def _complete(self, step: Step) -> None:
        total = self._group.total()
        self._progress.note_total(step, total)
        training = self._progress.training
        weigh(training.trained_parameters(), total.weight / step.global_batch)
        self._precision.unscale(training.optimizers[0], total.scale)
        self._progress.gradients.complete()
