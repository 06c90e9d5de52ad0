"""The training loader: this worker's part of every step, in micro-batches that fit."""

from collections.abc import Iterator
from typing import Any

import torch

from potluck.engine.fetching import FetchAhead, Fetcher, FetchNow, Samples, to_device
from potluck.engine.group import Group
from potluck.engine.position import DataOrder, Slice, cut
from potluck.engine.progress import Progress
from potluck.engine.seeding import seed_all
from potluck.engine.step import Step


class SharedLoader:
    """Iterating it once is one epoch, from wherever the committed step stands."""

    def __init__(
        self,
        samples: Samples,
        order: DataOrder,
        *,
        group: Group,
        progress: Progress,
        device: torch.device,
        micro_batch: int | None,
        num_workers: int,
    ) -> None:
        self.order = order
        self._group = group
        self._progress = progress
        self._device = device
        self._micro_batch = micro_batch
        self._fetcher: Fetcher = (
            FetchAhead(
                samples, order, num_workers=num_workers, upcoming=self._upcoming, pin_memory=device.type == "cuda"
            )
            if num_workers
            else FetchNow(samples, order)
        )

    def __len__(self) -> int:
        """Steps in an epoch."""
        return self.order.steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        progress, order = self._progress, self.order
        progress.begin_epoch()
        while progress.step < progress.last_step:
            progress.timer.lap("rest_s")
            # The group may be ahead: then this worker takes part in its step, and is healed in it.
            part = self._group.begin(progress.step, order.batch_of)
            progress.timer.lap("exchange_wait_s")
            pieces = cut(part, self._micro_batch)
            step = Step(
                number=part.step,
                epoch=order.epoch_of(part.step),
                global_batch=order.batch_of(part.step),
                num_micro_batches=len(pieces),
            )
            progress.begin_step(step)
            for piece in pieces:
                if piece is not pieces[0]:
                    progress.timer.lap("compute_s")  # the script is done with the piece before
                batch = to_device(self._fetcher.fetch(piece if piece.num_samples else _stand_in(piece)), self._device)
                progress.timer.lap("data_wait_s")
                # Dropout and the like draw the same numbers when the step is retried or resumed.
                seed_all(self._device, order.seed, part.step, piece.start)
                step.hand_out(piece.num_samples)
                self._group.exchange_in(this_pass=step.is_last_micro_batch)
                if step.is_last_micro_batch:
                    progress.timer.computing()
                yield batch
                del batch  # while the next one is read, only the script may hold it
            step.finish()
            progress.end_step()
            if step.counts and progress.step % order.steps_per_epoch == 0:
                return

    def close(self) -> None:
        """End the processes that read ahead."""
        self._fetcher.close()

    def _upcoming(self, first: Slice) -> Iterator[Slice]:
        """The pieces expected from this one on, if the split stays as it is."""
        pieces = self._expected(first.step)
        yield from pieces[pieces.index(first) :] if first in pieces else [first]
        for number in range(first.step + 1, self._progress.last_step):
            yield from self._expected(number)

    def _expected(self, step: int) -> list[Slice]:
        return cut(self._group.expect(step, self.order.batch_of(step)), self._micro_batch)


def _stand_in(empty: Slice) -> Slice:
    """One sample for a worker without any: its backward pass is what takes part in the exchange."""
    return Slice(empty.step, 0, 1)
