"""Sums an evaluation's numbers over the workers of a group."""

import time

from torch import Tensor
from torch.distributed.distributed_c10d import AllreduceOptions

from potluck.engine.group.connection import Connection
from potluck.engine.group.protocol import Lost
from potluck.engine.group.timeouts import StepTimeout


class EvaluationSums:
    """All-reduces with a timeout that follows the duration of evaluations, not of steps."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._timeout = StepTimeout(num_known=1)
        self._since = 0.0

    def begin(self) -> None:
        """Start timing this worker's share of an evaluation."""
        self._since = time.monotonic()

    def sum(self, values: Tensor) -> Tensor:
        """The sum of all workers' values; raises Lost if a peer is lost."""
        connection, group = self._connection, self._connection.process_group
        options, limit = AllreduceOptions(), self._timeout.timeout()
        options.timeout = limit  # torchft changes it in place
        summed = values.to(connection.place.device) if group.backend == "nccl" else values
        try:
            with connection.waits.waiting_for("evaluation"):
                group.allreduce([summed], options).wait(limit)
                if (error := group.errored()) is not None:  # NCCL ends an aborted sum without an exception
                    raise error
        except Exception as error:
            self._timeout.spoiled(someone_left=False)
            raise Lost(str(error)) from error
        self._timeout.committed(time.monotonic() - self._since)
        return summed.to(values.device)
