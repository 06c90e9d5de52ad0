"""How busy this machine is: processor, memory, network and GPUs, measured every few seconds."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from potluck.machine.card_meter import CardMeter, GpuUsage
from potluck.machine.flows import FlowMeter
from potluck.machine.processor_power import ProcessorPower

_LEAST_S = 0.1  # shorter spans say nothing about the load


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One measurement; CPU and network are means since the measurement before."""

    seconds: float
    """Since the measurement before."""
    cpu: float
    cpu_power_w: float | None
    """Watts of the processors; None where the system does not tell."""
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
        self._sent, self._received = _network_bytes()
        self._read_rates = read_rates or FlowMeter().look
        """Returns this machine's address, and the bytes a second to its peers' addresses."""
        self._cards, self._processors = CardMeter(), ProcessorPower()
        _cpu_busy()  # psutil's first value has nothing to compare with
        self._at = time.monotonic()

    def look(self, *, at_once: bool = False) -> Usage | None:
        """The usage since the last measurement; None if that was less than `every_s` seconds ago, unless `at_once`."""
        import psutil  # noqa: PLC0415

        now = time.monotonic()
        seconds = now - self._at
        if seconds < (_LEAST_S if at_once else self._every_s):
            return None
        sent, received = _network_bytes()
        memory = psutil.virtual_memory()
        address, sending = self._read_rates()
        usage = Usage(
            seconds=seconds,
            cpu_power_w=self._processors.look(),
            cpu=_cpu_busy(),
            memory_bytes=int(memory.total - memory.available),
            memory_total_bytes=int(memory.total),
            sent_bytes_per_s=max(0, sent - self._sent) / seconds,
            received_bytes_per_s=max(0, received - self._received) / seconds,
            gpus=self._cards.look(),
            address=address,
            sending_bytes_per_s=sending,
        )
        self._at, self._sent, self._received = now, sent, received
        return usage


def _cpu_busy() -> float:
    import psutil  # noqa: PLC0415

    return float(psutil.cpu_percent(interval=None)) / 100


def _network_bytes() -> tuple[int, int]:
    """Bytes sent and received over all interfaces except loopback."""
    import psutil  # noqa: PLC0415

    counters = [counter for name, counter in psutil.net_io_counters(pernic=True).items() if not name.startswith("lo")]
    return sum(counter.bytes_sent for counter in counters), sum(counter.bytes_recv for counter in counters)
