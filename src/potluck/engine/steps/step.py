"""One global batch on its way to a commit."""

from dataclasses import dataclass, field
from enum import Enum

from torch import Tensor

from potluck.core.errors import UsageError
from potluck.engine.group.protocol import Total


class StepOutcome(Enum):
    """What became of a step."""

    OPEN = "open"
    COMMITTED = "committed"
    SKIPPED = "skipped"  # committed, but fp16 gradients overflowed and no parameter changed
    SPOILED = "spoiled"  # a worker was lost: the same global batch is tried again


@dataclass(slots=True)
class Step:
    """This worker's micro-batches of one step, checked against what the training loop does with them."""

    number: int
    epoch: int
    global_batch: int
    num_micro_batches: int
    is_several: bool = False
    """Several optimizers: each may have backward passes of its own for the same batch."""
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
        """The loop gets the next micro-batch."""
        self._check_backward()
        self._handed_out += 1
        self._in_hand = num_samples
        self.samples += num_samples

    def finish(self) -> None:
        """The loop asks for more: everything must have been used."""
        self._check_backward()
        if not self.is_decided:
            raise UsageError(
                f"the loop asks for the next batch, but step {self.number + 1} was never applied",
                fix="call optimizer.step() after run.backward(loss), with the optimizer that run.prepare returned. To "
                "add up gradients over n batches, make global_batch n times as large instead: what does not fit into "
                "memory is cut into micro-batches (potluck.start(micro_batch=...)), with the same result",
            )

    def add(self, loss: Tensor, count: float | Tensor | None) -> float:
        """Note the loss of the micro-batch in hand; return the weight that its gradient has in the sum.

        Weights are in units of the global batch, which every worker knows beforehand: a plain sum over samples would
        be hundreds of times larger and overflow in fp16.
        """
        if self._backwards >= self._handed_out:
            self._begin_another_pass()
        self._backwards += 1
        # A worker without samples runs one for the exchange's sake; it weighs nothing.
        weight = 0.0 if self._in_hand == 0 else float(self._in_hand if count is None else count)
        self.weight += weight
        if weight:  # a mean over nothing is not a number
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
        """What all workers brought to a backward pass; the loss of a step is the sum over its passes."""
        before = self.total.loss_sum / self.total.weight if self.total.weight else 0.0
        self.total = total._replace(loss_sum=total.loss_sum + before * total.weight)

    def apply(self, optimizer: int) -> None:
        """One of several optimizers steps."""
        if self.is_decided:
            raise UsageError(
                "optimizer.step was called after the step was counted",
                fix="call optimizer.step() before run.evaluate or run.save_checkpoint, or with the next batch",
            )
        if not self.has_all_gradients or self._applied.get(optimizer) == self._backwards:
            raise without_gradient()
        self._applied[optimizer] = self._backwards

    def move(self, number: int, epoch: int, global_batch: int) -> None:
        """The group is at another step: what this worker has computed does not count in it."""
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
        """No gradient has been added yet."""
        return self._backwards == 0

    @property
    def is_decided(self) -> bool:
        return self.verdict is not StepOutcome.OPEN

    @property
    def counts(self) -> bool:
        return self.verdict in (StepOutcome.COMMITTED, StepOutcome.SKIPPED)

    @property
    def changed_parameters(self) -> bool:
        return self.verdict is StepOutcome.COMMITTED

    def _check_backward(self) -> None:
        if self._backwards < self._handed_out:
            raise UsageError(
                f"a batch of step {self.number + 1} was left without a backward pass",
                fix="call run.backward(loss) once for every batch from the loader",
            )


def without_gradient() -> UsageError:
    """An optimizer steps, and there is nothing new to apply."""
    return UsageError(
        "optimizer.step was called without a new gradient",
        fix="call run.backward(loss), then optimizer.step(), once for every batch from the loader",
    )
