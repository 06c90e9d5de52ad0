"""How busy this machine's graphics cards are: NVIDIA's through NVML, AMD's through the files of its Linux driver."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_AMD = "0x1002"
_DRM = Path("/sys/class/drm")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """How busy one GPU is; None where its driver does not report a value."""

    name: str
    id: str = ""
    """The card's UUID; empty where the driver gives none."""
    busy: float | None
    memory_bytes: int | None
    memory_total_bytes: int | None
    power_w: float | None
    """The mean since the look before, where the driver counts energy; else the power at this moment."""


class CardMeter:
    """Looks at all cards; a look takes less than a millisecond a card."""

    def __init__(self, drm: Path = _DRM) -> None:
        self._amd = [card / "device" for card in sorted(drm.glob("card[0-9]")) if _text(card / "device/vendor") == _AMD]
        self._has_nvml: bool | None = None
        self._energy_mj: dict[int, tuple[float, int]] = {}

    def look(self) -> tuple[GpuUsage, ...]:
        """The use of every card; cards whose driver stops answering are left out."""
        return (*self._nvidia(), *(_amd_card(folder) for folder in self._amd))

    def _nvidia(self) -> tuple[GpuUsage, ...]:
        import pynvml  # noqa: PLC0415  only processes that train or look at the machine pay for the import

        if self._has_nvml is None:
            try:
                pynvml.nvmlInit()
                self._has_nvml = True
            except pynvml.NVMLError:
                self._has_nvml = False
        if not self._has_nvml:
            return ()
        try:
            return tuple(self._nvidia_card(index) for index in range(pynvml.nvmlDeviceGetCount()))
        except pynvml.NVMLError:  # a driver that was updated under a running process stops answering
            self._has_nvml = False
            return ()

    def _nvidia_card(self, index: int) -> GpuUsage:
        import pynvml  # noqa: PLC0415

        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        utilization = ask_nvml("nvmlDeviceGetUtilizationRates", handle)
        return GpuUsage(
            name=as_text(pynvml.nvmlDeviceGetName(handle)),
            id=as_text(ask_nvml("nvmlDeviceGetUUID", handle) or ""),
            busy=None if utilization is None else utilization.gpu / 100,
            memory_bytes=int(memory.used),
            memory_total_bytes=int(memory.total),
            power_w=self._power_w(index, handle),
        )

    def _power_w(self, index: int, handle: Any) -> float | None:
        now, energy_mj = time.monotonic(), ask_nvml("nvmlDeviceGetTotalEnergyConsumption", handle)
        if energy_mj is not None:
            before = self._energy_mj.get(index)
            self._energy_mj[index] = (now, energy_mj)
            if before is not None and now > before[0] and energy_mj >= before[1]:
                return float(energy_mj - before[1]) / 1000 / (now - before[0])
        power_mw = ask_nvml("nvmlDeviceGetPowerUsage", handle)  # laptops' GPUs often do not report it
        return None if power_mw is None else power_mw / 1000


def ask_nvml(function: str, *arguments: Any) -> Any:
    """The answer of one of NVML's functions; None where the card or the driver does not have it."""
    import pynvml  # noqa: PLC0415

    try:
        return getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError:
        return None


def as_text(value: str | bytes) -> str:
    """NVML's text; some releases of its Python package give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _amd_card(folder: Path) -> GpuUsage:
    busy, power_uw = _number(folder / "gpu_busy_percent"), None
    for file in [*folder.glob("hwmon/hwmon*/power1_average"), *folder.glob("hwmon/hwmon*/power1_input")]:
        power_uw = _number(file) if power_uw is None else power_uw
    return GpuUsage(
        name=_text(folder / "product_name") or "AMD graphics card",
        id=_text(folder / "unique_id"),
        busy=None if busy is None else busy / 100,
        memory_bytes=_number(folder / "mem_info_vram_used"),
        memory_total_bytes=_number(folder / "mem_info_vram_total"),
        power_w=None if power_uw is None else power_uw / 1e6,
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text.isdigit() else None
