"""The clock, and whether something keeps it right."""

import ctypes
import sys
import time

from potluck.machine.facts import Clock

_UNSYNCHRONISED = 0x40  # STA_UNSYNC
_TIMEX_BYTES, _STATUS_OFFSET = 208, 40


def read_clock() -> Clock:
    """The kernel knows whether a time service adjusts it; None where there is no such kernel."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        return Clock(unix_s=time.time())
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)  # modes = 0: only ask
    if ctypes.CDLL(None, use_errno=True).adjtimex(timex) < 0:
        return Clock(unix_s=time.time())
    status = int.from_bytes(timex.raw[_STATUS_OFFSET : _STATUS_OFFSET + 4], sys.byteorder)
    return Clock(unix_s=time.time(), is_synchronised=not status & _UNSYNCHRONISED)
