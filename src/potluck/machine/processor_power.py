"""The power of this machine's processors, from the energy counters (RAPL) that Linux shows for Intel and AMD."""

import time
from pathlib import Path

_POWERCAP = Path("/sys/class/powercap")


class ProcessorPower:
    """Measures the mean power since the look before; on most systems only root may read the counters."""

    def __init__(self, powercap: Path = _POWERCAP) -> None:
        self._packages = [zone for zone in sorted(powercap.glob("intel-rapl:*")) if _is_package(zone)]
        self._before = self._read()

    def look(self) -> float | None:
        """Watts of all processors together; None where a counter cannot be read."""
        before, self._before = self._before, self._read()
        if before is None or self._before is None or self._before[0] <= before[0]:
            return None
        joules = 0.0
        for zone, now, then in zip(self._packages, self._before[1], before[1], strict=True):
            range_uj = _number(zone / "max_energy_range_uj") or 0
            joules += (now - then if now >= then else now + range_uj - then) / 1e6  # the counter starts again at 0
        return joules / (self._before[0] - before[0])

    def _read(self) -> tuple[float, list[int]] | None:
        found = [_number(zone / "energy_uj") for zone in self._packages]
        known = [energy for energy in found if energy is not None]
        return (time.monotonic(), known) if known and len(known) == len(found) else None


def _is_package(zone: Path) -> bool:
    """Whether the zone is a whole processor: its cores and its memory controller have zones of their own."""
    try:
        return (zone / "name").read_text().startswith("package")
    except OSError:
        return False


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
