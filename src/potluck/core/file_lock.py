"""An exclusive lock on an open file; the system releases it when the process that holds it ends."""

import sys
import time

if sys.platform == "win32":
    import msvcrt
    import os

    _FAR = 1 << 40  # the locked byte cannot be read by others, so it is one that no file has

    def _lock(file: int, *, is_shared: bool) -> bool:
        before = os.lseek(file, 0, os.SEEK_CUR)
        try:
            os.lseek(file, _FAR, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
            if is_shared:  # Windows has no shared lock here: this one was only tried
                os.lseek(file, _FAR, os.SEEK_SET)
                msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(file, before, os.SEEK_SET)
        return True

else:
    import fcntl

    def _lock(file: int, *, is_shared: bool) -> bool:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def try_hold(file: int, *, wait_s: float = 0.0) -> bool:
    """Lock the file until it is closed; False if another process still holds the lock after wait_s."""
    deadline = time.monotonic() + wait_s
    while not _lock(file, is_shared=False):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


def is_held_by_another(file: int) -> bool:
    """Whether another process of this machine holds the lock; if not, take a shared lock until the file is closed."""
    return not _lock(file, is_shared=True)
