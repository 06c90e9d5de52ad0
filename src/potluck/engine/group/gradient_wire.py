"""Sums of tensors over a group's workers, on the wire as they are or in the run's code."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.distributed_c10d import AllreduceOptions
from torch.futures import Future
from torchft import Manager

from potluck.engine.group.coded_sums import CodedSums
from potluck.engine.group.codes import CODES
from potluck.engine.group.forming import RosteredGroup
from potluck.engine.group.staging import HostStaging


class GradientWire:
    """Sums tensors over all workers of a step. A failed sum is reported to the manager, so that no step commits it."""

    def __init__(
        self, manager: Callable[[], Manager], group: RosteredGroup, timeout: Callable[[], timedelta], code: str
    ) -> None:
        self.code = code
        """exact, fp16, int8 or int4: how `sum` sends values."""
        self._manager = manager
        self._whole = group
        self._group: Any = group
        self._timeout = timeout
        self._staging: HostStaging | None = None
        self._coded = CodedSums(lambda: self._group, timeout, has_failed=lambda: self.has_failed, report=self.report)

    @property
    def backend(self) -> str:
        return self._whole.backend

    def switch_to(self, group: Any | None, code: str) -> None:
        """Sum over the workers of this process group from now on, None for all workers, and in this code."""
        self._group, self.code = group or self._whole, code

    @property
    def has_failed(self) -> bool:
        """Whether a sum of the open step has failed."""
        return self._manager().errored() is not None

    def begin(self) -> None:
        """An exchange of tensors begins."""
        self._coded.begin()

    def sum(self, tensor: Tensor, *, is_last: bool) -> Future[Tensor]:
        """Replace a flat tensor by its sum over all workers; `is_last`: it is the last one of this exchange."""
        if tensor.device.type == "cpu" or self.backend == "nccl":
            return self._sum_on_host(tensor, is_last)
        if self._staging is None:  # Gloo's support for CUDA tensors is incomplete, so copy them through host memory
            self._staging = HostStaging(tensor.device, self._sum_on_host)
        return self._staging.sum(tensor, is_last=is_last)

    def _sum_on_host(self, tensor: Tensor, is_last: bool) -> Future[Tensor]:
        if self.code == "exact" or self._is_over_or_alone():
            return self.sum_exactly(tensor)
        if self.code == "fp16":
            halves = tensor.to(torch.float16)
            return self.sum_exactly(halves).then(lambda done: tensor.copy_(done.value()))
        return self._coded.sum(tensor, CODES[self.code], is_last=is_last)

    def _is_over_or_alone(self) -> bool:
        """Whether nothing is to be coded: the process group has one worker, or it was closed because a peer is gone."""
        try:
            return bool(self._group.size() == 1)
        except AssertionError as error:  # what torchft raises for a closed group
            self.report(error)
            return True

    def sum_exactly(self, tensor: Tensor) -> Future[Tensor]:
        """Replace the tensor by its sum over all workers, whatever the run's code."""
        manager = self._manager()
        if manager.errored() is None:
            try:
                options = AllreduceOptions()
                options.timeout = self._timeout()
                # A timeout inside the backend: after it, the backend no longer writes into the tensor.
                summed: Future[Any] = self._group.allreduce([tensor], options).get_future()
                return summed.then(partial(self._note_end, tensor))
            except Exception as error:  # noqa: BLE001  a peer is gone: the step will not be committed
                self.report(error)
        done: Future[Tensor] = Future()
        done.set_result(tensor)
        return done

    def _note_end(self, tensor: Tensor, done: Future[Any]) -> Tensor:
        """Report a failed all-reduce to the manager; a future raises its error only from `value()`."""
        try:
            done.value()
        except Exception as error:  # noqa: BLE001
            self.report(error)
        return tensor

    def report(self, error: Exception) -> None:
        """The open step will not be committed."""
        self._manager().report_error(error)
