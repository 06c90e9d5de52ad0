"""Process groups for all-reduces of an accelerator's tensors: by NCCL, or by Gloo through host memory."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist
from torch.distributed.distributed_c10d import AllreduceOptions, ReduceOp

from potluck.measuring.link_sweep import Ring

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]


class NcclRing:
    """An NCCL process group of some of the workers, each with a CUDA device of its own."""

    def __init__(self, store: "Store", rank: int, size: int, timeout: timedelta, device: torch.device) -> None:
        torch.accelerator.set_device_index(device.index or 0)
        nccl: Any = dist.ProcessGroupNCCL
        options = nccl.Options()
        options._timeout = timeout
        self.device = device
        self._group = nccl(store, rank, size, options)

    def sum(self, values: torch.Tensor, how: Any = ReduceOp.SUM) -> None:
        """All-reduce the device's values in place; returns when the device has them."""
        options = AllreduceOptions()
        options.reduceOp = how
        self._group.allreduce([values], options).wait()
        torch.accelerator.synchronize(self.device)


class StagedRing:
    """Gloo for an accelerator's tensors: a copy to host memory, the all-reduce, and a copy back, as in training."""

    def __init__(self, ring: Ring, device: torch.device) -> None:
        self.device = device
        self._ring = ring

    def sum(self, values: torch.Tensor, how: Any = ReduceOp.SUM) -> None:
        """All-reduce the device's values in place."""
        on_host = values.cpu()
        self._ring.sum(on_host, how)
        values.copy_(on_host)
