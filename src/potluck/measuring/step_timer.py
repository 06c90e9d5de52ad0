"""Where a step's time goes. Laps follow each other without a gap, so the parts always add up to the step.

A worker sees one wait: from its own last gradient to the end of the exchange. All leave the exchange together, so the
worker that waited least was the slowest, and its wait is the wire alone; what others waited longer, they waited for it.
On an accelerator the host is ahead of the device: there two events on the device tell compute from the wait.
"""

import time
from typing import TYPE_CHECKING, Any, Literal

from potluck.events.types import StepTiming

if TYPE_CHECKING:
    import torch

Part = Literal["data_wait_s", "compute_s", "exchange_wait_s", "commit_s", "rest_s"]


class StepTimer:
    """Times one worker's steps from commit to commit."""

    def __init__(self, device: "torch.device | None" = None) -> None:
        self._device_clock = None if device is None or device.type == "cpu" else _DeviceClock(device)
        self._parts: dict[str, float] = {}
        self._retry_s = 0.0
        self._seen_s = 0.0
        self._last_s = time.perf_counter()
        self._last_cpu_s = time.process_time()
        self._cpu_s = 0.0
        self.cpu_s = 0.0
        """Processor time of the last committed step's own work, of all threads."""

    def restart(self) -> None:
        """The time until now belongs to no step: an evaluation, a pause of the script."""
        self._last_s = time.perf_counter()
        self._last_cpu_s = time.process_time()
        self._cpu_s = 0.0
        self._parts = {}
        self._retry_s = 0.0

    def lap(self, part: Part) -> None:
        """The time since the last lap was spent on this."""
        now_s, cpu_s = time.perf_counter(), time.process_time()
        self._parts[part] = self._parts.get(part, 0.0) + now_s - self._last_s
        if part != "exchange_wait_s":
            self._cpu_s += cpu_s - self._last_cpu_s
        self._last_s, self._last_cpu_s = now_s, cpu_s

    def computing(self) -> None:
        """The device gets its last work: call it when the last micro-batch is handed out. Others are waited for."""
        if self._device_clock is not None:
            self._seen_s = self._parts.get("compute_s", 0.0)
            self._device_clock.begin()

    def gradients_ready(self) -> None:
        """This worker's last gradient is there: what follows is the exchange."""
        self.lap("compute_s")
        if self._device_clock is not None:
            self._device_clock.end()

    def spoil(self) -> None:
        """All since the last commit was in vain: the same batch is tried again."""
        self.lap("rest_s")
        self._retry_s += sum(self._parts.values())
        self._parts, self._cpu_s = {}, 0.0

    def commit(self) -> StepTiming:
        """The step counts; the next one begins."""
        self.lap("rest_s")
        if self._device_clock is not None:
            self._shift(self._device_clock.seconds())
        timing = StepTiming(**self._parts, retry_s=self._retry_s)
        self._parts, self._retry_s = {}, 0.0
        self.cpu_s, self._cpu_s = self._cpu_s, 0.0
        return timing

    def _shift(self, device_s: float | None) -> None:
        """Move what the device was still computing from the wait, where the host saw it, to compute."""
        if device_s is not None:
            waited_s, computed_s = self._parts.get("exchange_wait_s", 0.0), self._parts.get("compute_s", 0.0)
            more_s = min(max(0.0, device_s - (computed_s - self._seen_s)), waited_s)
            self._parts |= {"compute_s": computed_s + more_s, "exchange_wait_s": waited_s - more_s}


class _DeviceClock:
    """Two events in the device's own queue."""

    def __init__(self, device: "torch.device") -> None:
        import torch  # noqa: PLC0415  the account reads timings where there is no torch

        self._events: list[Any] = [torch.Event(device, enable_timing=True) for _ in range(2)]
        self._recorded = [False, False]

    def begin(self) -> None:
        self._record(0)

    def end(self) -> None:
        self._record(1)

    def seconds(self) -> float | None:
        """Between the two, once the device has come so far."""
        if not all(self._recorded):
            return None
        self._recorded = [False, False]
        self._events[1].synchronize()
        return float(self._events[0].elapsed_time(self._events[1])) / 1e3

    def _record(self, index: int) -> None:
        self._events[index].record()
        self._recorded[index] = True
