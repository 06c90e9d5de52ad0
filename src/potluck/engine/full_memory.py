"""How many samples fit into this worker's memory at once, and the error for a micro-batch that did not fit."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from potluck.core.errors import MeasureError
from potluck.core.words import counted
from potluck.engine.steps.parts import RunParts
from potluck.engine.steps.progress import Progress
from potluck.measuring.memory import is_out_of_memory


class MemoryLimit:
    """The largest micro-batch: the `micro_batch` option, else the largest size that is known to fit."""

    def __init__(self, parts: RunParts, progress: Progress, micro_batch: int | None) -> None:
        self._parts = parts
        self._progress = progress
        self._micro_batch = micro_batch
        self._has_told = False

    def micro_batch(self) -> int | None:
        """The most samples in a micro-batch; None if this worker may try its whole share of a step at once."""
        return self._micro_batch or self._parts.balance.memory_cap

    def tell(self, batch_size: int) -> None:
        """Write a notice, once, that the memory of this worker limits its micro-batches."""
        if self._has_told:
            return
        self._has_told = True
        cap = self._parts.balance.memory_cap
        if self._micro_batch is None and cap is not None and cap < batch_size:
            self._parts.journal.say(
                f"{self._parts.machine} takes at most {counted(cap, 'sample')} at once: more do not fit into its "
                "memory; a larger share is computed in several micro-batches, with the same result"
            )

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Store the size that did not fit as a smaller cap for the next start; raise out-of-memory as MeasureError."""
        try:
            yield
        except Exception as error:
            step = self._progress.open_step
            is_evaluating = not torch.is_grad_enabled()
            if step is None or step.is_decided or is_evaluating or not is_out_of_memory(error):
                raise
            at_once = self._parts.balance.kept.out_of_memory(step.in_hand)
            too_much = counted(step.in_hand, "sample does", "samples at once do")
            raise MeasureError(
                f"{too_much} not fit into the memory of {self._parts.device} on {self._parts.machine}",
                fix=f"start this worker again: it will take at most {at_once} at once, with the same result",
            ) from error
