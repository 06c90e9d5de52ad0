"""`optimizer.step()`: a single optimizer steps after the commit vote, several optimizers before it."""

from torch.optim import Optimizer

from potluck.core.errors import UsageError
from potluck.engine.checkpoints.state import TrainingState
from potluck.engine.group.protocol import Group
from potluck.engine.steps.open_gradients import Gradients
from potluck.engine.steps.provisional import Provisional
from potluck.engine.steps.step import Step, StepOutcome, without_gradient
from potluck.engine.steps.stop_deadline import StopDeadline
from potluck.measuring.step_timer import StepTimer


class Applying:
    """Applies the open step's gradients when the script calls `optimizer.step()`."""

    def __init__(
        self,
        training: TrainingState,
        provisional: Provisional,
        group: Group,
        timer: StepTimer,
        stop_deadline: StopDeadline,
    ) -> None:
        self.gradients = Gradients(training.parameters)
        self.provisional = provisional
        self._training = training
        self._group = group
        self._timer = timer
        self._stop_deadline = stop_deadline

    def apply(self, step: Step, optimizer: Optimizer) -> None:
        """Handle the script's optimizer.step(): it counts only after the step's last micro-batch."""
        if not step.is_last_micro_batch:
            return
        if not step.has_all_gradients and self.gradients.present():
            raise UsageError(
                "the gradients were made by loss.backward(), so the other machines know nothing of them",
                fix="write run.backward(loss) instead of loss.backward()",
            )
        if self._training.has_several_optimizers:
            index = next(i for i, one in enumerate(self._training.optimizers) if one is optimizer)
            step.apply(index)
            self._change_provisionally(index)
        else:
            self._commit_and_change(step, optimizer)

    def settle(self, step: Step) -> None:
        """With several optimizers: hold the commit vote when the script is done with a batch; keep or undo changes."""
        if step.is_decided or not step.was_applied:
            return
        if self._vote(step):
            self._stop_deadline.forbid()
            self.provisional.keep()
            step.verdict = StepOutcome.COMMITTED
        else:
            with self._stop_deadline.changing_state():
                self.provisional.undo()

    def _commit_and_change(self, step: Step, optimizer: Optimizer) -> None:
        """Hold the commit vote; apply the gradients if the step is committed, otherwise drop them for a retry."""
        if not step.has_all_gradients or step.is_decided:
            raise without_gradient()
        precision = self._training.precision
        if self._group.round.is_open:
            self._change_and_commit(step, optimizer)
        elif self._vote(step):
            self._stop_deadline.forbid()
            step.verdict = StepOutcome.COMMITTED if precision.step(optimizer) else StepOutcome.SKIPPED
            self._timer.lap("compute_s")
        else:
            precision.reset()

    def _change_and_commit(self, step: Step, optimizer: Optimizer) -> None:
        """In a round: apply this worker's own gradients; the last local step exchanges, and votes on the round."""
        precision, is_changed = self._training.precision, True
        with self._stop_deadline.changing_state():
            if self._group.round.moves:
                is_changed = precision.step(optimizer)
            else:
                precision.reset()
        if self._vote(step):
            if not self._group.committed.num_steps:
                step.verdict = StepOutcome.LOCAL
            else:
                step.verdict = StepOutcome.COMMITTED if is_changed else StepOutcome.SKIPPED

    def _change_provisionally(self, index: int) -> None:
        with self._stop_deadline.changing_state():
            if self._group.waits:
                self.provisional.before(index)
                self._group.begin_change()
            self._training.optimizers[index].step()

    def _vote(self, step: Step) -> bool:
        self._timer.lap("compute_s")
        is_committed = self._group.commit()
        self._timer.lap("commit_s")
        if not is_committed:
            self._timer.spoil()
            step.verdict = StepOutcome.SPOILED
            self.gradients.restore()
        return is_committed
