"""Sums an accelerator's gradients on the CPU: copies through pinned host memory that run beside backward."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor
from torch.futures import Future

_LOOK_S = 0.0002


class HostStaging:
    """All-reduces of one accelerator's tensors by a backend that works on host memory, in the order of the calls.

    The copy to the host runs on a stream of its own as soon as backward has filled the tensor. A thread waits for that
    copy and starts the all-reduce, so that backward goes on meanwhile. The same thread copies the sum back, on the same
    stream: the backend's threads would open a context on the first device. Whoever waits for the returned future makes
    its own stream wait for that copy.
    """

    def __init__(self, device: torch.device, sum_on_host: Callable[[Tensor, bool], Future[Tensor]]) -> None:
        self._device = device
        self._sum_on_host = sum_on_host
        self._stream = torch.Stream(device)
        use_device = partial(torch.accelerator.set_device_index, device.index)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="staging", initializer=use_device)
        self._used: deque[tuple[Tensor, torch.Event]] = deque()
        """Host buffers, each with the event after which it can be used again."""

    def sum(self, tensor: Tensor, *, is_last: bool) -> Future[Tensor]:
        """Replace the tensor by its sum over all workers; `is_last`: it is the last one of this exchange."""
        host = self._host_buffer(tensor)
        filled = torch.Event(self._device)
        filled.record(torch.accelerator.current_stream(self._device))  # where backward writes the gradients
        self._stream.wait_event(filled)
        with self._current():
            host.copy_(tensor, non_blocking=True)
            copied = self._stream.record_event()
        done: Future[Tensor] = Future(devices=[self._device])
        self._thread.submit(self._exchange, tensor, host, copied, done, is_last=is_last)
        return done

    def _exchange(
        self, tensor: Tensor, host: Tensor, copied: torch.Event, done: Future[Tensor], *, is_last: bool
    ) -> None:
        try:
            while not copied.query():  # synchronize() would keep a core busy for all of backward
                time.sleep(_LOOK_S)
            self._sum_on_host(host, is_last).then(
                lambda summed: self._thread.submit(self._copy_back, tensor, host, done, summed)
            )
        except Exception as error:  # noqa: BLE001  raised where the future is waited for
            done.set_exception(error)  # type: ignore[arg-type]

    def _copy_back(self, tensor: Tensor, host: Tensor, done: Future[Tensor], summed: Future[Tensor]) -> None:
        try:
            with self._current():
                tensor.copy_(summed.value(), non_blocking=True)
                self._used.append((host, self._stream.record_event()))
                done.set_result(tensor)  # records an event on the current stream, which waiting streams wait for
        except Exception as error:  # noqa: BLE001  raised where the future is waited for
            done.set_exception(error)  # type: ignore[arg-type]

    def _current(self) -> torch.Stream:
        """The stream, to enter it: one torch.Stream keeps what to restore, so two threads must not enter the same."""
        own = self._stream
        return torch.Stream(stream_id=own.stream_id, device_index=own.device_index, device_type=own.device_type)

    def _host_buffer(self, like: Tensor) -> Tensor:
        """Pinned memory, from which a device copies without the CPU's help; a buffer of an earlier step if one fits."""
        for _ in range(len(self._used)):
            host, is_free = self._used.popleft()
            if host.shape == like.shape and host.dtype == like.dtype and is_free.query():
                return host
            self._used.append((host, is_free))
        try:
            return torch.empty_like(like, device="cpu", pin_memory=True)
        except RuntimeError:  # WSL2 has little memory to pin; without pinning the copies are slower, and right
            return torch.empty_like(like, device="cpu")
