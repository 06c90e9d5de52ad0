"""The training loader: this worker's share of every step, in micro-batches that fit into memory."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch.utils.data import Dataset, default_collate

from potluck.core.errors import UsageError
from potluck.engine.data.fetching import Collate, FetchAhead, Fetcher, FetchNow, Samples, to_device
from potluck.engine.data.reading import Reading
from potluck.engine.data.stream import Stream
from potluck.engine.order.position import DataOrder, Slice, split_into_micro_batches
from potluck.engine.order.seeding import seed_all
from potluck.engine.steps.parts import RunParts
from potluck.engine.steps.progress import Progress
from potluck.engine.steps.step import Step
from potluck.sharing.arriving import expect, is_arriving

_STEPS_AHEAD = 8
_MOST_AHEAD = 20_000


class SharedLoader:
    """One loop over the loader is one epoch, or its rest, starting at the committed step.

    If the script leaves the loop early, the rest of the epoch is skipped; a second loop in the same epoch continues it.
    """

    def __init__(
        self,
        reading: Reading,
        order: DataOrder,
        *,
        parts: RunParts,
        progress: Progress,
        micro_batch: Callable[[], int | None],
        noticing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.order = order
        self.reading = reading
        samples = _samples(reading, order.seed)
        # Several reader processes would all read the same stream.
        num_workers = min(1, reading.num_workers) if reading.is_stream else reading.num_workers
        self._group = parts.group
        self._progress = progress
        self._device = parts.device
        self._micro_batch = micro_batch
        self._noticing = noticing
        self._fetcher: Fetcher = (
            FetchAhead(
                samples,
                order,
                num_workers=num_workers,
                upcoming=self._upcoming,
                pin_memory=parts.device.type != "cpu",
                worker_init=reading.worker_init,
            )
            if num_workers
            else FetchNow(samples, order)
        )

        self._left_out = order.left_out
        self._made_in_epoch = progress.position.epoch

    def __len__(self) -> int:
        """Steps in an epoch."""
        return self.order.steps_per_epoch

    @property
    def dataset(self) -> Any:
        return self.reading.dataset

    @property
    def batch_size(self) -> int:
        """The samples of a step over all machines."""
        return self.order.global_batch

    @property
    def num_workers(self) -> int:
        return self.reading.num_workers

    @property
    def collate_fn(self) -> Collate:
        return self.reading.collate or default_collate

    @property
    def drop_last(self) -> bool:
        return self.order.drop_last

    def __iter__(self) -> Iterator[Any]:
        """Yield this worker's micro-batches of each step. A step that did not commit leaves `position.step` as it is,
        so the next turn of this loop is its retry.
        """
        progress, position, order = self._progress, self._progress.position, self.order
        progress.begin_epoch()
        while position.step < position.last_step:
            progress.timer.lap("rest_s")
            # The group may be at a later step: then this worker takes part in that step, and is healed in it.
            part = self._group.begin(position.step, order)
            progress.timer.lap("exchange_wait_s")
            micro_batches = split_into_micro_batches(part, self._micro_batch())
            self._follow_order()
            step = Step(
                number=part.step,
                epoch=order.epoch_of(part.step),
                global_batch=order.batch_of(part.step),
                num_micro_batches=len(micro_batches),
                is_several=progress.training.has_several_optimizers,
            )
            progress.begin_step(step)
            self._announce(micro_batches[0])
            for micro_batch in micro_batches:
                if micro_batch is not micro_batches[0]:
                    progress.timer.lap("compute_s")  # the script has finished the previous micro-batch
                wanted = micro_batch if micro_batch.num_samples else _stand_in(micro_batch)
                step.hand_out(micro_batch.num_samples)
                with self._noticing():
                    batch = to_device(self._fetcher.fetch(wanted), self._device)
                progress.timer.lap("data_wait_s")
                # Dropout must draw the same numbers when the step is retried or resumed.
                seed_all(self._device, order.seed, part.step, micro_batch.start)
                self._group.exchange_in(this_pass=step.is_last_micro_batch)
                if step.is_last_micro_batch:
                    progress.timer.computing()
                try:
                    yield batch
                except GeneratorExit:
                    progress.has_left_loop = True
                    raise
                del batch  # frees its memory before the next batch is read, unless the script holds it
            progress.settle_step()
            step.finish()
            progress.end_step()
            if (step.counts and order.begins_epoch(position.step)) or progress.must_leave_epoch:
                return

    def check_replaced_by(self, reading: Reading) -> None:
        """Refuse a second loader with other data; a script may make a new loader of the same data in every epoch."""
        then, now = self.reading, reading
        is_same = now.dataset is then.dataset or self._progress.position.epoch > self._made_in_epoch
        lengths = (then.num_samples, then.global_batch) == (now.num_samples, now.global_batch)
        if not is_same or not lengths or self._progress.open_step is not None:
            raise UsageError(
                "run.loader was called twice, with other data",
                fix="train on one dataset; use run.evaluate(dataset, measure) for others",
            )

    def _announce(self, first: Slice) -> None:
        """Data that arrives from another machine: say which samples this and the next steps need."""
        if self.reading.is_stream or not is_arriving():
            return
        samples: list[int] = []
        num_now = 0
        for part in self._upcoming(first):
            if part.step >= first.step + _STEPS_AHEAD or len(samples) > _MOST_AHEAD:
                break
            samples += self.order.indices(part).tolist()
            if part.step == first.step:
                num_now = len(samples)
        expect(samples, num_now, self.reading.num_samples)

    def _follow_order(self) -> None:
        """Drop the batches read ahead if batches were skipped since: the following steps have other samples now."""
        if self._left_out != self.order.left_out:
            self._left_out = self.order.left_out
            self._fetcher.forget()

    def close(self) -> None:
        """End the processes that read ahead."""
        self._fetcher.close()

    def _upcoming(self, first: Slice) -> Iterator[Slice]:
        """The micro-batches from `first` to the end of training, if the plan does not change."""
        micro_batches = self._expected(first.step)
        yield from micro_batches[micro_batches.index(first) :] if first in micro_batches else [first]
        if self._group.round.is_open:  # the next round's samples depend on its group
            for part in self._group.round.upcoming():
                yield from split_into_micro_batches(part, self._micro_batch())
            return
        for number in range(first.step + 1, self._progress.position.last_step):
            yield from self._expected(number)

    def _expected(self, step: int) -> list[Slice]:
        return split_into_micro_batches(self._group.expect(step, self.order.batch_of(step)), self._micro_batch())


def _samples(reading: Reading, seed: int) -> Dataset[Any]:
    if reading.is_stream:
        return Stream(reading.dataset, seed, reading.collate, reading.global_batch, reading.num_samples)
    return Samples(reading.dataset, seed, reading.collate)


def _stand_in(empty: Slice) -> Slice:
    """One sample for a worker with an empty share: it needs a backward pass to take part in the all-reduce."""
    return Slice(empty.step, 0, 1)
