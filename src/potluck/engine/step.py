"""One global batch on its way to a commit."""

from dataclasses import dataclass, field
from enum import Enum

from torch import Tensor

from potluck.core.errors import UsageError
from potluck.engine.group import Total


class Verdict(Enum):
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
    verdict: Verdict = Verdict.OPEN
    samples: int = 0
    weight: float = 0.0
    total: Total = field(default_factory=lambda: Total(0.0, 0.0, 1.0))
    _losses: Tensor | None = None
    _handed_out: int = 0
    _in_hand: int = 0
    _backwards: int = 0

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
                fix="call optimizer.step() after run.backward(loss), with the optimizer that run.prepare returned",
            )

    def add(self, loss: Tensor, count: float | Tensor | None) -> float:
        """Note the loss of the micro-batch in hand; return the weight that its gradient has in the sum.

        Weights are in units of the global batch, which every worker knows beforehand: a plain sum over samples would
        be hundreds of times larger and overflow in fp16.
        """
        if self._backwards == self._handed_out:
            raise UsageError(
                "run.backward was called twice for one batch",
                fix="add the losses and call run.backward(loss) once for every batch from the loader",
            )
        self._backwards += 1
        # A worker without samples runs one for the exchange's sake; it weighs nothing.
        weight = 0.0 if self._in_hand == 0 else float(self._in_hand if count is None else count)
        self.weight += weight
        if weight:  # a mean over nothing is not a number
            weighted = loss.detach() * weight
            self._losses = weighted if self._losses is None else self._losses + weighted
        return weight / self.global_batch

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
        return self._backwards == self.num_micro_batches

    @property
    def is_fresh(self) -> bool:
        """No gradient has been added yet."""
        return self._backwards == 0

    @property
    def is_decided(self) -> bool:
        return self.verdict is not Verdict.OPEN

    @property
    def counts(self) -> bool:
        return self.verdict in (Verdict.COMMITTED, Verdict.SKIPPED)

    @property
    def changed_parameters(self) -> bool:
        return self.verdict is Verdict.COMMITTED

    def _check_backward(self) -> None:
        if self._backwards < self._handed_out:
            raise UsageError(
                f"a batch of step {self.number + 1} was left without a backward pass",
                fix="call run.backward(loss) once for every batch from the loader",
            )
