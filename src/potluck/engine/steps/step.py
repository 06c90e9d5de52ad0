"""One attempt at a step on this worker: from its first micro-batch to its outcome."""

from dataclasses import dataclass, field
from enum import Enum

from torch import Tensor

from potluck.core.errors import UsageError
from potluck.engine.group.protocol import Total


class StepOutcome(Enum):
    """The outcome of an attempt at a step."""

    OPEN = "open"
    COMMITTED = "committed"
    SKIPPED = "skipped"  # committed, but fp16 gradients overflowed and no parameter changed
    LOCAL = "local"  # a step of an open round: it has changed this worker's parameters, and counts with its round
    SPOILED = "spoiled"  # not committed, mostly because a worker was lost: the same global batch is retried


@dataclass(slots=True)
class Step:
    """This worker's micro-batches of one step; checks that the script uses each of them correctly."""

    number: int
    epoch: int
    global_batch: int
    num_micro_batches: int
    is_several: bool = False
    """Whether there are several optimizers: each may have its own backward passes for the same batch."""
    verdict: StepOutcome = StepOutcome.OPEN
    samples: int = 0
    weight: float = 0.0
    total: Total = field(default_factory=lambda: Total(0.0, 0.0, 1.0))
    _losses: Tensor | None = None
    _handed_out: int = 0
    _in_hand: int = 0
    _backwards: int = 0
    _applied: dict[int, int] = field(default_factory=dict)  # by optimizer: after how many backward passes it stepped

    def hand_out(self, num_samples: int) -> None:
        """The loader gives the next micro-batch to the script."""
        self._check_backward()
        self._handed_out += 1
        self._in_hand = num_samples
        self.samples += num_samples

    def finish(self) -> None:
        """Check, when the script asks for the next step's batch, that it has used this step's."""
        self._check_backward()
        if not self.is_decided:
            raise UsageError(
                f"the loop asks for the next batch, but step {self.number + 1} was never applied",
                fix="call optimizer.step() after run.backward(loss), with the optimizer that run.prepare returned. To "
                "add up gradients over n batches, make global_batch n times as large instead: what does not fit into "
                "memory is cut into micro-batches (potluck.start(micro_batch=...)), with the same result",
            )

    def add(self, loss: Tensor, count: float | Tensor | None) -> float:
        """Add the loss of the current micro-batch; return the weight of its gradient in the sum.

        Weights are in units of the global batch, which every worker knows beforehand: a plain sum over samples would
        be hundreds of times larger and overflow in fp16.
        """
        if self._backwards >= self._handed_out:
            self._begin_another_pass()
        self._backwards += 1
        # A worker without samples computes one, only to take part in the all-reduce: its weight is 0.
        weight = 0.0 if self._in_hand == 0 else float(self._in_hand if count is None else count)
        self.weight += weight
        if weight:  # a mean over nothing is NaN
            weighted = loss.detach() * weight
            self._losses = weighted if self._losses is None else self._losses + weighted
        return weight / self.global_batch

    def _begin_another_pass(self) -> None:
        if not self.is_several:
            raise UsageError(
                "run.backward was called twice for one batch",
                fix="add the losses and call run.backward(loss) once for every batch from the loader",
            )
        if self.num_micro_batches > 1:
            raise UsageError(
                "a batch that is cut into micro-batches has a second backward pass: the optimizer's step before it "
                "would be made with a part of the batch",
                fix="leave micro_batch out and lower global_batch until a machine's part fits into its memory, or add "
                "the losses and call run.backward(loss) once a batch",
            )
        self.weight, self._losses = 0.0, None

    def note_total(self, total: Total) -> None:
        """Record the sums of one backward pass over all workers; the loss of a step is the sum over its passes."""
        before = self.total.loss_sum / self.total.weight if self.total.weight else 0.0
        self.total = total._replace(loss_sum=total.loss_sum + before * total.weight)

    def apply(self, optimizer: int) -> None:
        """Record that one of several optimizers steps; raises UsageError if it must not step now."""
        if self.is_decided:
            raise UsageError(
                "optimizer.step was called after the step was counted",
                fix="call optimizer.step() before run.evaluate or run.save_checkpoint, or with the next batch",
            )
        if not self.has_all_gradients or self._applied.get(optimizer) == self._backwards:
            raise without_gradient()
        self._applied[optimizer] = self._backwards

    def move(self, number: int, epoch: int, global_batch: int) -> None:
        """Change to the step that the group is at; what this worker has computed does not count in that step."""
        self.number, self.epoch, self.global_batch = number, epoch, global_batch
        self.samples = 0

    @property
    def loss_sum(self) -> float:
        """The weighted sum of this worker's losses; reading it waits for the device."""
        return 0.0 if self._losses is None else self._losses.item()

    @property
    def in_hand(self) -> int:
        """Samples of the micro-batch that the script works on."""
        return self._in_hand

    @property
    def is_last_micro_batch(self) -> bool:
        return self._handed_out == self.num_micro_batches

    @property
    def has_all_gradients(self) -> bool:
        return self._backwards >= self.num_micro_batches

    @property
    def begins_sum(self) -> bool:
        """Whether the next backward pass is the first of those that are exchanged together."""
        return self._backwards == 0 or self.has_all_gradients

    @property
    def was_applied(self) -> bool:
        """Whether one of several optimizers has stepped."""
        return bool(self._applied)

    @property
    def is_fresh(self) -> bool:
        """Whether no backward pass has begun yet."""
        return self._backwards == 0

    @property
    def is_decided(self) -> bool:
        return self.verdict is not StepOutcome.OPEN

    @property
    def counts(self) -> bool:
        return self.verdict in (StepOutcome.COMMITTED, StepOutcome.SKIPPED)

    @property
    def changed_parameters(self) -> bool:
        return self.verdict in (StepOutcome.COMMITTED, StepOutcome.LOCAL)

    def _check_backward(self) -> None:
        if self._backwards < self._handed_out:
            raise UsageError(
                f"a batch of step {self.number + 1} was left without a backward pass",
                fix="call run.backward(loss) once for every batch from the loader",
            )


def without_gradient() -> UsageError:
    """The error for an optimizer.step() without a new gradient."""
    return UsageError(
        "optimizer.step was called without a new gradient",
        fix="call run.backward(loss), then optimizer.step(), once for every batch from the loader",
    )
