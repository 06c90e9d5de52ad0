"""The events of a worker's training: its start, committed steps, ended epochs, a diverged loss."""

from potluck.engine.checkpoints.state import EpochSoFar
from potluck.engine.steps.divergence import LossWatch, advice
from potluck.engine.steps.parts import RunParts
from potluck.engine.steps.step import Step, StepOutcome
from potluck.engine.steps.training_position import TrainingPosition
from potluck.events import types as events


class ProgressEvents:
    """Writes the events of a run's Progress, and sums up the epoch."""

    def __init__(self, parts: RunParts, position: TrainingPosition) -> None:
        self._parts = parts
        self._position = position
        self._loss_watch = LossWatch()
        self._has_told_leaving = False
        self._round_s = 0.0
        """Seconds of the open round's local steps so far."""

    def training_began(self) -> None:
        """Write TrainingBegan, once both run.epochs and run.loader were called."""
        position, order = self._position, self._position.order
        assert position.num_epochs is not None
        self._parts.journal.emit(
            events.TrainingBegan(
                num_samples=order.num_samples,
                global_batch=order.global_batch,
                steps_per_epoch=order.steps_per_epoch,
                num_epochs=position.num_epochs,
                last_step=position.last_step,
                left_out=order.left_out,
            )
        )
        if position.step >= position.last_step:
            self._parts.journal.say(f"nothing is left to train: {position.step} of {position.last_step} steps are done")

    def step_committed(self, step: Step) -> None:
        """Write StepCommitted, with the loss over all workers and this worker's timing.

        A local step of a round has this worker's own loss.
        """
        parts, position = self._parts, self._position
        timing = parts.timer.commit()
        is_traced = parts.tracer is not None and parts.tracer.disturbs
        if not is_traced:
            parts.balance.timed(step.samples, step.num_micro_batches, timing, parts.timer.cpu_s)
        weight, loss_sum = step.total.weight, step.total.loss_sum
        self._round_s += timing.step_s
        if step.verdict is not StepOutcome.LOCAL:
            total = parts.group.committed.total or step.total
            samples = parts.group.committed.samples or step.global_batch
            position.so_far.add(loss_sum=total.loss_sum, weight=total.weight, samples=samples, seconds=self._round_s)
            self._round_s = 0.0
        loss = loss_sum / weight if weight else None
        is_skipped = step.verdict is StepOutcome.SKIPPED
        parts.journal.emit(
            events.StepCommitted(
                step=position.step + position.ahead,
                epoch=step.epoch,
                samples=step.global_batch,
                own_samples=step.samples,
                quorum_id=parts.group.quorum_id,
                loss=events.finite(loss),
                seconds=timing.step_s,
                skipped=is_skipped,
                timing=timing,
                traced=is_traced,
            )
        )
        if loss is not None and not is_skipped:
            self._watch_loss(loss)

    def step_ended(self, step: Step) -> None:
        """Called when the script is done with a step, before the next begins."""
        if self._parts.tracer is not None and step.counts:
            self._parts.tracer.step_ended(self._position.step)

    def _watch_loss(self, loss: float) -> None:
        diverged = self._loss_watch.look(self._position.step, loss)
        if diverged is not None:
            self._parts.journal.emit(diverged)
            self._parts.journal.say(advice(diverged))

    def epoch_left(self, epoch: int, left_out: int) -> None:
        """Write a notice, once and on one worker, that the script left the loader's loop early."""
        if not self._parts.group.writes or self._has_told_leaving:
            return
        self._has_told_leaving = True
        per_epoch = self._position.order.steps_per_epoch
        self._parts.journal.say(
            f"the script left the loader's loop after {per_epoch - left_out} of {per_epoch} steps: the rest of "
            f"epoch {epoch + 1} is left out, and so it is in every epoch that the script leaves early"
        )

    def epoch_ended(self, left_out: int) -> None:
        """Write EpochEnded and the summary, after the epoch's last step is committed."""
        position = self._position
        so_far, position.so_far = position.so_far, EpochSoFar()
        if self._parts.group.is_benched:
            return  # the workers that trained the epoch write its event
        self._parts.journal.emit(
            events.EpochEnded(
                epoch=position.order.epoch_of(position.step - 1),
                step=position.step,
                samples=so_far.samples,
                loss=events.finite(so_far.mean_loss),
                seconds=so_far.seconds,
                left_out=left_out,
            )
        )
        self._parts.journal.save_summary()
