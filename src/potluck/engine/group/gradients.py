"""Gradients summed over workers by stock DDP's reducer, bucket by bucket, while backward still runs."""

import inspect
import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.futures import Future
from torchft.process_group import ProcessGroupDummy

from potluck.engine.compute.fingerprint import gradient_bytes
from potluck.engine.group.bucket_size import bucket_size
from potluck.engine.group.gradient_wire import GradientWire
from potluck.engine.group.protocol import Announcement
from potluck.engine.group.roster import Roster
from potluck.engine.order.pieces import Piece, num_samples
from potluck.planning.costs import bucket_bytes
from potluck.planning.replanning.cost_report import NUM_COST_NUMBERS, CostReport


class Contribution(NamedTuple):
    """One worker's contribution to a step, as numbers that can be summed and checked."""

    step: int
    pieces: tuple[Piece, ...]
    """The samples that this worker's numbers are over, as pieces of the step's or the round's samples."""
    own: Announcement
    since_quorum_s: float = 0.0
    """Seconds since this worker last asked for a quorum."""

    @property
    def num_samples(self) -> int:
        return num_samples(self.pieces)

    def numbers(self) -> "GradientSums":
        """This worker's summands of GradientSums."""
        size, own = self.num_samples, self.own
        if not size:  # a mean over nothing may be NaN, and would spoil the sums
            return GradientSums(0.0, 0.0, 0.0, 0.0, 0.0, own.is_last, 0.0, 0.0, own.pauses)
        return GradientSums(
            weight=own.weight,
            loss=own.loss_sum,
            scale=own.scale * size,
            samples=size,
            borders=sum(_mark(self.step, stop) - _mark(self.step, start) for start, stop in self.pieces),
            leaving=own.is_last,
            left_out=own.left_out * size,
            since_quorum_s=self.since_quorum_s * size,
            pausing=own.pauses,
        )


class GradientSums(NamedTuple):
    """Numbers that are sent with the gradients and summed over all workers."""

    weight: float
    loss: float
    scale: float
    samples: float
    borders: float
    leaving: float
    left_out: float
    since_quorum_s: float
    pausing: float

    @property
    def mean_scale(self) -> float:
        """The fp16 loss scale, which is the same on all workers that had samples."""
        return self.scale / self.samples if self.samples else 1.0

    @property
    def mean_left_out(self) -> float:
        """Skipped batches, averaged over samples: every worker's own number if all have skipped the same."""
        return self.left_out / self.samples if self.samples else 0.0

    @property
    def mean_since_quorum_s(self) -> float:
        """Seconds since workers last asked for a quorum, averaged over samples."""
        return self.since_quorum_s / self.samples if self.samples else 0.0


# Buffers are sent with the gradients, so DDP must leave them alone in forward; newer torch renamed that option.
_DDP_PARAMETERS = inspect.signature(nn.parallel.DistributedDataParallel.__init__).parameters
_KEEP_BUFFERS: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _DDP_PARAMETERS else "broadcast_buffers": False
}


def are_whole(sums: GradientSums, step: int, batch: int) -> bool:
    """Whether the shares add up to exactly this step's global batch: every sample once, all of this step.

    Each share contributes the mark of its end minus the mark of its beginning. Where two shares meet, the marks cancel,
    so that only the marks of the batch's own two ends remain.
    """
    return sums.samples == batch and sums.borders == _mark(step, batch) - _mark(step, 0)


def _mark(step: int, position: int) -> int:
    """A checksum of this position in this step; small enough for a float64 to sum up millions exactly."""
    return zlib.crc32(struct.pack(">qq", step, position))


class GradientExchange:
    """A model in DDP whose buckets go through torchft's process group, plus one small tensor per step.

    The small tensor holds the contribution, the cost reports, and the floating-point buffers (BatchNorm's running
    statistics) weighted by samples, so that after a step all workers have the same buffers. The tensor is sent before
    backward starts.
    """

    needs_state_first = False
    """Whether optimizers step before the commit vote, so that a worker must be healed before it takes part."""

    def __init__(
        self,
        model: nn.Module,
        wire: GradientWire,
        gradients_ready: Callable[[], None],
    ) -> None:
        self.num_bytes = gradient_bytes(model)
        self.wire = wire
        self._gradients_ready = gradients_ready
        self._contributes = True
        self._device = next(model.parameters()).device
        self._buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        self._all_buffers = dict(model.named_buffers())
        self._before = {name: buffer.clone() for name, buffer in self._all_buffers.items()}
        self._num_told = 0
        self._control: Future[Tensor] | None = None
        self._combined: Tensor | None = None
        self.wrapped = self._wrap(model)

    def _wrap(self, model: nn.Module) -> nn.Module:
        wrapped = nn.parallel.DistributedDataParallel(
            model,
            # Buckets must never be rebuilt, or those of a healed worker would differ: hence find_unused_parameters.
            process_group=ProcessGroupDummy(0, 1),
            find_unused_parameters=True,
            gradient_as_bucket_view=True,
            bucket_cap_mb=bucket_size(model, bucket_bytes(self.num_bytes, self.wire.code)) / (1 << 20),
            **_KEEP_BUFFERS,
        )
        wrapped.register_comm_hook(None, self._sum_bucket)
        return wrapped

    def exchange_in(self, *, this_pass: bool) -> None:
        """Set the flag of DDP's no_sync: a context manager cannot enclose a forward pass in the script."""
        self.wrapped.require_backward_grad_sync = this_pass  # type: ignore[assignment]

    def remember(self) -> None:
        """Keep the buffers as they are before the step's first forward pass."""
        if self._all_buffers:  # one call for all of them: this is done in every step
            torch._foreach_copy_(list(self._before.values()), list(self._all_buffers.values()))

    def between_steps(self, parameters_and_buffers: dict[str, Any]) -> dict[str, Any]:
        """A model's state dict, with the buffers as they were before the open step's forward passes."""
        return parameters_and_buffers | {k: v for k, v in self._before.items() if k in parameters_and_buffers}

    def begin(self, contribution: Contribution, told: CostReport, roster: Roster) -> None:
        """Send the small tensor; the buckets follow as backward fills them."""
        samples = contribution.num_samples
        self._contributes = samples > 0
        self._num_told = len(roster.members)
        before, after = roster.mine * NUM_COST_NUMBERS, (self._num_told - roster.mine - 1) * NUM_COST_NUMBERS
        numbers = torch.tensor(
            [*contribution.numbers(), *[0.0] * before, *told.floats, *[0.0] * after], dtype=torch.float64
        )
        # First to the CPU: not every accelerator has float64.
        weighted = [buffer.detach().cpu().to(torch.float64).flatten() * samples for buffer in self._buffers]
        if not self._contributes:
            weighted = [torch.zeros_like(buffer) for buffer in weighted]  # zero times a stale infinity is not zero
        control = torch.cat([numbers, *weighted]) if weighted else numbers
        self.wire.begin()
        self._control = self.wire.sum_exactly(control.to(self._device) if self.wire.backend == "nccl" else control)

    def end(self) -> tuple[GradientSums, list[CostReport]]:
        """Wait for the small tensor: the sums over all workers, and each worker's cost report."""
        assert self._control is not None
        control, self._control = self._control.wait().cpu(), None
        num_sums, num_told = len(GradientSums._fields), self._num_told * NUM_COST_NUMBERS
        sums = GradientSums(*control[:num_sums].tolist())
        told = control[num_sums : num_sums + num_told].view(self._num_told, -1).tolist()
        self._combined = control[num_sums + num_told :] / max(sums.samples, 1.0)
        return sums, [CostReport.read(numbers) for numbers in told]

    def settle(self, *, committed: bool) -> None:
        """After the commit vote, set the buffers to the mean over all workers, or back to before the spoiled step."""
        if not committed:
            for name, buffer in self._all_buffers.items():
                buffer.copy_(self._before[name])
        elif self._buffers and self._combined is not None:
            parts = torch.split(self._combined, [buffer.numel() for buffer in self._buffers])
            for buffer, part in zip(self._buffers, parts, strict=True):
                buffer.copy_(part.view_as(buffer))

    def _sum_bucket(self, _: Any, bucket: GradBucket) -> Future[Tensor]:
        if bucket.is_last():
            self._gradients_ready()
        buffer = bucket.buffer()
        if not self._contributes:
            buffer.zero_()
        return self.wire.sum(buffer, is_last=bucket.is_last())
