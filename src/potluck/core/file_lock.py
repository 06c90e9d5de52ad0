"""An exclusive lock on an open file; the kernel releases it when the process that holds it ends."""

import time


def try_hold(file: int, *, wait_s: float = 0.0) -> bool:
    """Lock the file until it is closed; False if another process still holds the lock after wait_s."""
    import fcntl  # noqa: PLC0415  POSIX only; code that only reads runs must work on every system

    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        else:
            return True


def is_held_by_another(file: int) -> bool:
    """Whether another process of this machine holds the lock; if not, take a shared lock until the file is closed."""
    import fcntl  # noqa: PLC0415

    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
