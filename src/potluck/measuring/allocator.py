"""glibc's allocator, told to keep freed memory: by default it gives large blocks back to the system after every step.

Every block that is given back is taken again in the next step, page by page, and the system fills each page with zeros.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt's names for them
_KEPT_BYTES = 1 << 30
_USUAL_BYTES = (64 << 20, 32 << 20)  # what glibc's own thresholds rise to in a program with large blocks


def keep_freed_memory() -> bool:
    """Keep up to a gigabyte of freed memory in this process; False where the allocator is not glibc's."""
    return _set_thresholds(_KEPT_BYTES, _KEPT_BYTES)


def give_back_freed_memory() -> None:
    """Undo `keep_freed_memory`."""
    _set_thresholds(*_USUAL_BYTES)


def _set_thresholds(trim_bytes: int, mmap_bytes: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl has none
        return False
    return bool(mallopt(_TRIM_THRESHOLD, trim_bytes)) and bool(mallopt(_MMAP_THRESHOLD, mmap_bytes))
