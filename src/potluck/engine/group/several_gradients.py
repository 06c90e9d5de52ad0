"""Gradients of several models or optimizers, summed over workers after each backward pass.

DDP's reducer expects one forward and one backward pass of one model. A script with two models calls them in any order
and number before a backward pass that may reach one of them or both. So here a backward pass is local; then the
workers agree which parameters got a gradient on any worker, and sum the gradients of those.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.futures import Future

from potluck.engine.group.gradients import Contribution, GradientExchange, GradientSums
from potluck.engine.group.roster import Roster
from potluck.planning.costs import bucket_bytes
from potluck.planning.replanning.cost_report import CostReport


class SeveralExchange(GradientExchange):
    """GradientExchange for several models or optimizers: an all-reduce after every backward pass, not during it."""

    needs_state_first = True

    def _wrap(self, model: nn.Module) -> nn.Module:
        self._trained: list[Tensor] = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return model

    def exchange_in(self, *, this_pass: bool) -> None:
        """Nothing to do: every backward pass is local."""

    def begin(self, contribution: Contribution, told: CostReport, roster: Roster) -> None:
        """Only store the arguments: `end` sends them with the gradients, when BatchNorm's statistics are complete."""
        self._to_tell = contribution, told, roster

    def end(self) -> tuple[GradientSums, list[CostReport]]:
        self._gradients_ready()
        super().begin(*self._to_tell)
        self._sum_gradients()
        return super().end()

    def _sum_gradients(self) -> None:
        has_gradient = [float(self._contributes and parameter.grad is not None) for parameter in self._trained]
        flags = torch.tensor(has_gradient, device=self._device if self.wire.backend == "nccl" else "cpu")
        anybody = self.wire.sum_exactly(flags).wait().tolist()
        reached = [parameter for parameter, number in zip(self._trained, anybody, strict=True) if number]
        under_way: list[tuple[list[Tensor], Tensor, Future[Tensor]]] = []
        buckets = list(_buckets(reached, bucket_bytes(self.num_bytes, self.wire.code)))
        for bucket in buckets:
            flat = torch.cat([self._own(parameter).flatten() for parameter in bucket])
            under_way.append((bucket, flat, self.wire.sum(flat, is_last=bucket is buckets[-1])))
        for bucket, flat, future in under_way:
            future.wait()
            sizes = [parameter.numel() for parameter in bucket]
            for parameter, part in zip(bucket, torch.split(flat, sizes), strict=True):
                parameter.grad = part.view_as(parameter)

    def _own(self, parameter: Tensor) -> Tensor:
        is_there = self._contributes and parameter.grad is not None
        return parameter.grad if is_there else torch.zeros_like(parameter)  # type: ignore[return-value]


def _buckets(parameters: list[Tensor], most_bytes: int) -> Iterator[list[Tensor]]:
    """Consecutive parameters of one type, in buckets of at most `most_bytes`; a larger parameter has its own."""
    bucket: list[Tensor] = []
    size = 0
    for parameter in parameters:
        num_bytes = parameter.numel() * parameter.element_size()
        fits = bucket and bucket[0].dtype == parameter.dtype and size + num_bytes <= most_bytes
        if bucket and not fits:
            yield bucket
            bucket, size = [], 0
        bucket.append(parameter)
        size += num_bytes
    if bucket:
        yield bucket
