"""How busy this machine is: processor, memory, network and GPUs, measured every few seconds."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from potluck.machine.flows import FlowMeter


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """How busy one GPU is; None where its driver does not report a value."""

    name: str
    busy: float | None
    memory_bytes: int | None
    memory_total_bytes: int | None
    power_w: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One measurement; CPU and network are means since the measurement before."""

    cpu: float
    memory_bytes: int
    memory_total_bytes: int
    sent_bytes_per_s: float
    received_bytes_per_s: float
    gpus: tuple[GpuUsage, ...]
    address: str
    sending_bytes_per_s: dict[str, float]


class UsageMeter:
    """Measures usage at most every `every_s` seconds, when `look` is called; that takes about a millisecond."""

    def __init__(
        self, every_s: float = 5.0, read_rates: Callable[[], tuple[str, dict[str, float]]] | None = None
    ) -> None:
        self._every_s = every_s
        self._at = time.monotonic()
        self._sent, self._received = _network_bytes()
        self._read_rates = read_rates or FlowMeter().look
        """Returns this machine's address, and the bytes a second to its peers' addresses."""
        self._has_gpus: bool | None = None
        _cpu_busy()  # psutil's first value has nothing to compare with

    def look(self) -> Usage | None:
        """The usage since the last measurement; None if that was less than `every_s` seconds ago."""
        import psutil  # noqa: PLC0415

        now = time.monotonic()
        seconds = now - self._at
        if seconds < self._every_s:
            return None
        sent, received = _network_bytes()
        memory = psutil.virtual_memory()
        address, sending = self._read_rates()
        usage = Usage(
            cpu=_cpu_busy(),
            memory_bytes=int(memory.total - memory.available),
            memory_total_bytes=int(memory.total),
            sent_bytes_per_s=max(0, sent - self._sent) / seconds,
            received_bytes_per_s=max(0, received - self._received) / seconds,
            gpus=self._gpus(),
            address=address,
            sending_bytes_per_s=sending,
        )
        self._at, self._sent, self._received = now, sent, received
        return usage

    def _gpus(self) -> tuple[GpuUsage, ...]:
        import pynvml  # noqa: PLC0415

        if self._has_gpus is None:
            try:
                pynvml.nvmlInit()
                self._has_gpus = True
            except pynvml.NVMLError:
                self._has_gpus = False
        if not self._has_gpus:
            return ()
        try:
            return tuple(_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
        except pynvml.NVMLError:  # a driver that was updated under a running process stops answering
            self._has_gpus = False
            return ()


def _gpu(index: int) -> GpuUsage:
    import pynvml  # noqa: PLC0415

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    name = pynvml.nvmlDeviceGetName(handle)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        busy: float | None = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    except pynvml.NVMLError:
        busy = None
    try:
        power_w: float | None = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
    except pynvml.NVMLError:  # laptops' GPUs often do not report it
        power_w = None
    return GpuUsage(
        name=name.decode() if isinstance(name, bytes) else str(name),
        busy=busy,
        memory_bytes=int(memory.used),
        memory_total_bytes=int(memory.total),
        power_w=power_w,
    )


def _cpu_busy() -> float:
    import psutil  # noqa: PLC0415

    return float(psutil.cpu_percent(interval=None)) / 100


def _network_bytes() -> tuple[int, int]:
    """Bytes sent and received over all interfaces except loopback."""
    import psutil  # noqa: PLC0415

    counters = [counter for name, counter in psutil.net_io_counters(pernic=True).items() if not name.startswith("lo")]
    return sum(counter.bytes_sent for counter in counters), sum(counter.bytes_recv for counter in counters)
