"""Graphics cards: NVIDIA's as the driver reports them through NVML, and all cards on the PCI bus, driver or not."""

from pathlib import Path

from potluck.machine.card_meter import as_text, ask_nvml
from potluck.machine.card_programs import read_programs
from potluck.machine.facts import Gpu

_PCI = Path("/sys/bus/pci/devices")
# Inside WSL2 every card of Windows is on the bus as Microsoft's, whoever made it.
PCI_VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel", "0x1414": "microsoft"}
_DISPLAY_CLASS = "0x03"
_HEAT = 0x20 | 0x40  # software and hardware thermal slowdown
_POWER = 0x04 | 0x80  # power cap and hardware power brake


def read_gpus() -> tuple[tuple[Gpu, ...], str]:
    """The NVIDIA devices, and the error if NVML is installed but fails; empty without NVML."""
    import pynvml  # noqa: PLC0415  only the commands that need facts pay for the import

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return (), ""
    except pynvml.NVMLError as error:
        return (), f"NVML: {error}"
    try:
        driver = as_text(pynvml.nvmlSystemGetDriverVersion())
        return tuple(_gpu(index, driver) for index in range(pynvml.nvmlDeviceGetCount())), ""
    except pynvml.NVMLError as error:
        return (), f"NVML: {error}"
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int, driver: str) -> Gpu:
    import pynvml  # noqa: PLC0415

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    reasons = ask_nvml("nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0  # old cards do not report it
    memory, utilization = pynvml.nvmlDeviceGetMemoryInfo(handle), ask_nvml("nvmlDeviceGetUtilizationRates", handle)
    programs, is_training = read_programs(handle)
    return Gpu(
        name=as_text(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(memory.total),
        used_bytes=int(memory.used),
        busy=None if utilization is None else utilization.gpu / 100,
        programs=programs,
        is_training=is_training,
        capability=f"{major}.{minor}",
        driver=driver,
        throttle=tuple(word for word, bits in (("heat", _HEAT), ("power", _POWER)) if reasons & bits),
    )


def read_pci_displays(pci: Path = _PCI) -> tuple[str, ...]:
    """Vendors of the graphics cards on the PCI bus, including cards without a driver."""
    found = []
    for device in sorted(pci.glob("*")):
        try:
            kind, vendor = (device / "class").read_text().strip(), (device / "vendor").read_text().strip()
        except OSError:
            continue
        if kind.startswith(_DISPLAY_CLASS) and vendor in PCI_VENDORS:
            found.append(PCI_VENDORS[vendor])
    return tuple(found)
