"""Memory limits: the memory that is free for this process, and the largest micro-batch that fits."""

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from potluck.core.errors import MeasureError
from potluck.machine.cgroups import own_cgroups

_PROC = Path("/proc")
_USABLE = 0.8  # the part of free memory to use: other processes need some too
_UNLIMITED = 1 << 60  # how cgroup v1 writes "no limit"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, torch's CPU allocator or an accelerator raised the error because memory is used up."""
    told = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and ("out of memory" in told or "can't allocate memory" in told))
    )


class MemoryCap:
    """The largest micro-batch that may be tried; the cap only ever gets smaller."""

    def __init__(self, cap: int | None = None) -> None:
        self.cap = cap

    def halve(self, failed: int) -> int:
        """Lower the cap because `failed` samples did not fit, and return how many to try next."""
        if failed <= 1:
            raise MeasureError(
                "one sample of this model does not fit into this machine's memory",
                fix="choose a smaller --model-size, or add --gradient-checkpointing",
            )
        self.cap = failed // 2 if self.cap is None else min(self.cap, failed // 2)
        return self.cap


def find_memory_cap(
    run: Callable[[int], None], largest: int, *, free_bytes: Callable[[], int] | None = None
) -> int | None:
    """The largest micro-batch that fits, by trying 1, 2, 4 and so on; None if `largest` fits.

    An accelerator raises an error when its memory is full. The CPU's memory is never filled: with `free_bytes` given,
    the memory of the next size is extrapolated from the last two sizes, and a size that would not fit is not tried.
    """
    fits = 0
    room = None if free_bytes is None else int(free_bytes() * _USABLE)
    peak = PeakMemory()
    grown: dict[int, int] = {}
    for size in _doubling(largest):
        if room is not None and (most := _most_that_fits(grown, room)) < size:
            return max(1, most)
        peak.restart()
        try:
            run(size)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return MemoryCap(fits or None).halve(size)
        fits, grown[size] = size, peak.grown_bytes()
    return None


def _doubling(largest: int) -> Iterator[int]:
    size = 1
    while size < largest:
        yield size
        size *= 2
    yield largest


def _most_that_fits(grown: dict[int, int], room: int) -> int:
    """The largest size that fits, by the line through the memory of the last two sizes."""
    if len(grown) < 2:
        return 1 << 40
    (smaller, smaller_bytes), (size, size_bytes) = list(grown.items())[-2:]
    per_sample = max(1.0, (size_bytes - smaller_bytes) / (size - smaller))
    return size + int((room - size_bytes) / per_sample)


class PeakMemory:
    """This process's peak memory since `restart`, above its memory when this object was made; Linux records the peak.

    The constructor first returns freed memory to the system: a trial that reused it would seem to need nothing.
    """

    def __init__(self) -> None:
        gc.collect()
        with suppress(OSError, AttributeError):  # a C library other than GNU's has no such function
            ctypes.CDLL(None).malloc_trim(0)
        self._before = _status_bytes("VmRSS")

    def restart(self) -> None:
        # Where this is not allowed, the peak is never reset: growth is overestimated, which only lowers the cap.
        with suppress(OSError):
            (_PROC / "self/clear_refs").write_text("5")

    def grown_bytes(self) -> int:
        return max(0, _status_bytes("VmHWM") - self._before)


def free_memory_bytes(limit: int | None = None) -> int:
    """Memory that this process can still allocate: the least of free memory, the room in its cgroups and in `limit`."""
    room = [_meminfo_bytes("MemAvailable"), *_cgroup_room()]
    if limit is not None:
        room.append(limit - _status_bytes("VmRSS"))
    return max(0, min(room))


def _cgroup_room() -> Iterator[int]:
    """Bytes left in this process's cgroup and in each of its parents; freeable file cache counts too."""
    for group in own_cgroups("memory"):
        if group.version == 2:
            limit, usage, cache = "memory.max", "memory.current", "inactive_file"
        else:
            limit, usage, cache = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        most, used = group.read(limit), group.read(usage)
        if most.isdigit() and used.isdigit() and int(most) < _UNLIMITED:
            yield int(most) - int(used) + _stat_bytes(group.read("memory.stat"), cache)


def _stat_bytes(text: str, key: str) -> int:
    """The value of a key in the text of memory.stat, 0 without the key."""
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{key} ")), 0)


def _meminfo_bytes(key: str) -> int:
    return _kilobytes(_PROC / "meminfo", key)


def _status_bytes(key: str) -> int:
    return _kilobytes(_PROC / "self/status", key)


def _kilobytes(file: Path, key: str) -> int:
    lines = file.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))
