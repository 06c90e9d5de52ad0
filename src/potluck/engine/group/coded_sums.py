"""Sums over all workers of tensors that travel in a code: all-to-all, sum in float32, all-gather.

A sum of integers would overflow, so an all-reduce cannot add up codes. Instead every worker sums one part of each
tensor: it gets this part from all others in code, adds what it has decoded to its own values, and sends the coded sum
to all. All workers, this one included, decode the same bytes, so that all get the same bits.

A group's collectives must be started in the same order on all workers. One thread starts those of all tensors of an
exchange in the order all-to-all 1, all-to-all 2, all-gather 1, all-to-all 3, all-gather 2, and so on: the wire is busy
with the next tensor while this worker adds up the previous one. A large tensor goes in pieces, for the same reason.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed.distributed_c10d import AllgatherOptions, AllToAllOptions  # type: ignore[attr-defined]
from torch.futures import Future

from potluck.engine.group.codes import UNIT, ChunkCode

_PIECE = 1 << 18  # values: 1 MB, of which some 100 KB travel in code


@dataclass(slots=True, eq=False)
class _Sum:
    """One tensor, or a piece of one, on its way to its sum."""

    tensor: Tensor
    code: ChunkCode
    has_ended: Callable[[], object]
    """To be called when the tensor is its sum, or when it will not be because a peer is gone."""
    part_size: int = 0
    """Values of the part that each worker sums; the last parts may have fewer."""
    mine: int = 0
    """This worker's rank, and so the part that it sums."""
    work: Any = None
    """The collective under way."""
    received: tuple[Tensor, ...] = ()
    """What that collective fills: this worker's part from each worker, then the sum of each part."""
    is_added: bool = False
    """Whether this worker has summed its part, so that `work` is the all-gather."""

    def part(self, index: int) -> Tensor:
        """The part of the tensor that the worker of this rank sums."""
        return self.tensor[index * self.part_size : (index + 1) * self.part_size]


class CodedSums:
    """Sums flat CPU tensors over the workers of a process group, one after the other."""

    def __init__(
        self,
        process_group: Callable[[], Any],
        timeout: Callable[[], timedelta],
        *,
        has_failed: Callable[[], bool],
        report: Callable[[Exception], None],
    ) -> None:
        self._process_group = process_group
        self._timeout = timeout
        self._has_failed = has_failed
        self._report = report
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="coding")
        self._under_way: deque[_Sum] = deque()

    def begin(self) -> None:
        """An exchange begins: forget sums of an exchange that the script has abandoned."""
        self._thread.submit(self._give_up)

    def sum(self, tensor: Tensor, code: ChunkCode, *, is_last: bool) -> Future[Tensor]:
        """Replace the tensor by its sum over all workers; `is_last`: it is the last of this exchange."""
        done: Future[Tensor] = Future()
        *pieces, last = torch.split(tensor, _PIECE)
        for piece in pieces:
            self._thread.submit(self._take, _Sum(piece, code, has_ended=lambda: None), is_last=False)
        # Pieces end in their order, so that all have ended when the last has.
        self._thread.submit(self._take, _Sum(last, code, has_ended=lambda: done.set_result(tensor)), is_last=is_last)
        return done

    def _take(self, newest: _Sum, *, is_last: bool) -> None:
        self._under_way.append(newest)
        try:
            if not self._has_failed():
                self._send(newest)
                self._move_on(newest, is_last=is_last)
        except Exception as error:  # noqa: BLE001  a peer is gone: the step will not be committed
            self._report(error)
        if self._has_failed():
            self._give_up()

    def _move_on(self, newest: _Sum, *, is_last: bool) -> None:
        """Start the all-gathers that are due, then wait for those that were started before."""
        to_finish = [one for one in self._under_way if one.is_added or is_last]
        for one in self._under_way:
            if not one.is_added and (is_last or one is not newest):
                self._add(one)
        for one in to_finish:
            self._finish(one)
            self._under_way.popleft()

    def _give_up(self) -> None:
        while self._under_way:
            self._under_way.popleft().has_ended()

    def _send(self, one: _Sum) -> None:
        """Code the parts that others sum, and start the all-to-all that brings each part to the worker that sums it."""
        group = self._process_group()
        num_workers, one.mine = group.size(), group.rank()
        one.part_size = -(-one.tensor.numel() // (num_workers * UNIT)) * UNIT
        coded = _parts(one, num_workers)
        for index, part in enumerate(coded):
            if index != one.mine:
                one.code.encode(one.part(index), part)
        one.received = _parts(one, num_workers)
        options = AllToAllOptions()
        options.timeout = self._timeout()
        one.work = group.alltoall_base(_whole(one.received), _whole(coded), [], [], options)

    def _add(self, one: _Sum) -> None:
        """Wait for this worker's part, sum it, and start the all-gather of all sums."""
        one.work.wait()
        total, own = torch.zeros(one.part_size), one.part(one.mine)
        total[: own.numel()] = own
        for index, part in enumerate(one.received):
            if index != one.mine:
                one.code.add(part, total)
        coded = torch.zeros_like(one.received[0])
        one.code.encode(total, coded)
        options = AllgatherOptions()
        options.timeout = self._timeout()
        one.work = self._process_group().allgather([list(one.received)], [coded], options)
        one.is_added = True

    def _finish(self, one: _Sum) -> None:
        """Wait for the sums of all parts, and decode them into the tensor."""
        one.work.wait()
        for index, part in enumerate(one.received):
            one.code.decode(part, one.part(index))
        one.has_ended()


def _parts(one: _Sum, num_workers: int) -> tuple[Tensor, ...]:
    """Room for a coded part of each worker, one after the other in memory."""
    size = one.code.num_bytes(one.part_size)
    return torch.split(torch.zeros(num_workers * size, dtype=torch.uint8), size)


def _whole(parts: tuple[Tensor, ...]) -> Tensor:
    """The memory of which these parts are views, as one tensor."""
    return parts[0].as_strided((len(parts) * len(parts[0]),), (1,))
