"""Times the parts of a step. Laps follow each other without a gap, so the parts always add up to the step.

A worker measures one wait: from its own last gradient to the end of the all-reduce. All workers leave the all-reduce
together, so the worker that waited least was the slowest: its wait is the time on the wire, and what other workers
waited longer was their wait for the slowest. On an accelerator the CPU runs ahead of the device: there two events in
the device's queue separate compute from the wait.
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
        """Processor time of this worker's own work in the last committed step, over all threads."""

    def restart(self) -> None:
        """Discard the time until now, because it belongs to no step: an evaluation, a pause of the script."""
        self._last_s = time.perf_counter()
        self._last_cpu_s = time.process_time()
        self._cpu_s = 0.0
        self._parts = {}
        self._retry_s = 0.0

    def lap(self, part: Part) -> None:
        """Add the time since the last lap to this part."""
        now_s, cpu_s = time.perf_counter(), time.process_time()
        self._parts[part] = self._parts.get(part, 0.0) + now_s - self._last_s
        if part != "exchange_wait_s":
            self._cpu_s += cpu_s - self._last_cpu_s
        self._last_s, self._last_cpu_s = now_s, cpu_s

    def computing(self) -> None:
        """Start the device's clock: call this when the last micro-batch of a step is handed to the script."""
        if self._device_clock is not None:
            self._seen_s = self._parts.get("compute_s", 0.0)
            self._device_clock.begin()

    def gradients_ready(self) -> None:
        """End compute, because this worker's last gradient is ready: the wait for the all-reduce begins."""
        self.lap("compute_s")
        if self._device_clock is not None:
            self._device_clock.end()

    def spoil(self) -> None:
        """Count all time since the last commit as retry time: the attempt failed, and the same batch is tried again."""
        self.lap("rest_s")
        self._retry_s += sum(self._parts.values())
        self._parts, self._cpu_s = {}, 0.0

    def commit(self) -> StepTiming:
        """Return the timing of the committed step, and begin the next step."""
        self.lap("rest_s")
        if self._device_clock is not None:
            self._shift(self._device_clock.seconds())
        timing = StepTiming(**self._parts, retry_s=self._retry_s)
        self._parts, self._retry_s = {}, 0.0
        self.cpu_s, self._cpu_s = self._cpu_s, 0.0
        return timing

    def _shift(self, device_s: float | None) -> None:
        """Move the time in which the device was still computing from the wait, where the CPU counted it, to compute."""
        if device_s is not None:
            waited_s, computed_s = self._parts.get("exchange_wait_s", 0.0), self._parts.get("compute_s", 0.0)
            more_s = min(max(0.0, device_s - (computed_s - self._seen_s)), waited_s)
            self._parts |= {"compute_s": computed_s + more_s, "exchange_wait_s": waited_s - more_s}


class _DeviceClock:
    """Measures seconds on the device, between two events in its queue."""

    def __init__(self, device: "torch.device") -> None:
        import torch  # noqa: PLC0415  the account reads timings where there is no torch

        self._events: list[Any] = [torch.Event(device, enable_timing=True) for _ in range(2)]
        self._recorded = [False, False]

    def begin(self) -> None:
        self._record(0)

    def end(self) -> None:
        self._record(1)

    def seconds(self) -> float | None:
        """Seconds between the two events, after waiting for the second; None if one was not recorded."""
        if not all(self._recorded):
            return None
        self._recorded = [False, False]
        self._events[1].synchronize()
        return float(self._events[0].elapsed_time(self._events[1])) / 1e3

    def _record(self, index: int) -> None:
        self._events[index].record()
        self._recorded[index] = True
