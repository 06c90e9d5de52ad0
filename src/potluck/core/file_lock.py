"""A lock on an open file: one process holds it, and the kernel takes it back when that process has ended."""

import time


def try_hold(file: int, *, wait_s: float = 0.0) -> bool:
    """Be the one process that holds the file, for as long as it is open; False if another still does after the wait."""
    import fcntl  # noqa: PLC0415  POSIX only, and what only reads runs must work everywhere

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
    """Whether a live process of this machine holds the file; asking takes a shared lock until the file is closed."""
    import fcntl  # noqa: PLC0415

    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
