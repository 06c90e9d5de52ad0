"""The first moment of a worker process, before it becomes its program: a script of its own, for a bare Python.

torch starts a program where the starter is, with its stdin and its ignored signals: a worker has its own of each.
The lock is kept for as long as the worker or a process that it forked lives; see leftovers.py.
"""

import fcntl
import os
import signal
import sys


def main(lock_file: str, folder: str, *command: str) -> None:
    """Settle in and become the command."""
    os.set_inheritable(settle_in(lock_file, folder), True)
    os.execvp(command[0], command)  # noqa: S606  no shell, which is the point


def settle_in(lock_file: str, folder: str) -> int:
    """Hold the lock, read from nowhere, be interruptible, change to the folder; returns the lock."""
    lock = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another process is this worker: it holds {lock_file}")
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    return lock


if __name__ == "__main__":
    main(*sys.argv[1:])
