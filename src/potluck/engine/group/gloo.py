"""torchft's reconfigurable Gloo group on one address: by default Gloo uses what the hostname resolves to."""

import time
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed import ProcessGroup, Store  # type: ignore[attr-defined]
from torchft.process_group import ProcessGroupGloo

_Backend: Any = distributed.ProcessGroupGloo
# The timeout of one of Gloo's five tries to connect, after all members have published their entries. All wait for it
# if a member is lost at that moment, so it is short; where members are slow, the next attempts take longer.
_CONNECT_S, _CONNECT_S_A_WORKER = 1.0, 0.05
_MOST_STRETCH = 4.0


class GlooOnDevice(ProcessGroupGloo):  # type: ignore[misc]
    """A Gloo group on a given device: all groups of a worker share one device, and so one port."""

    def __init__(self, timeout: timedelta, device: Any) -> None:
        super().__init__(timeout=timeout)
        self._device = device
        self._stretch = 1.0
        self._took_s = 0.0
        """Seconds in which the last group connected."""

    def rank(self) -> int:
        """This worker's rank in the group; torchft's own wrapper always says 0."""
        return int(self.parent.rank())

    def _create_pg(self, store: Store, rank: int, world_size: int) -> ProcessGroup:
        options = _Backend._Options()
        options._devices = [self._device]
        usual_s = self._stretch * (_CONNECT_S + _CONNECT_S_A_WORKER * world_size)
        options._timeout = timedelta(seconds=max(usual_s, self._took_s))
        began = time.monotonic()
        try:
            backend = _Backend(store, rank, world_size, options)
        except RuntimeError:
            self._stretch = min(2 * self._stretch, _MOST_STRETCH)
            raise
        self._stretch, self._took_s = 1.0, time.monotonic() - began
        backend._set_sequence_number_for_group()
        group = ProcessGroup(store, rank, world_size)
        group._set_default_backend(ProcessGroup.BackendType.GLOO)
        group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, backend)
        return group
