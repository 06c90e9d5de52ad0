"""Runs in the worker: the first and the last moment of a fork, which make it a process like any other program.

The lock is kept for as long as the worker or a process that it forked lives; see leftovers.py.
"""

import atexit
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress

from potluck.core.file_lock import try_hold


def live(function: Callable[[], None], folder: str, lock_file: str) -> None:
    """A fork's life, with the exit codes and the exit handlers that a program would have."""
    os.setsid()
    atexit._clear()  # those of the process that was forked are not this one's to run
    _hold(lock_file)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        function()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)  # torch would take it for a good end
    except Exception as error:
        sys.last_value = error  # where exit handlers look, as after an interpreter's own last traceback
        with suppress(OSError):
            traceback.print_exc()  # torch keeps the exception in a file beside the log
        raise
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves without; a run that nobody closed closes here
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # a full disk must not change how this process ends
                stream.flush()


def _hold(lock_file: str) -> None:
    """Lock the file until this process ends, and write its process id there."""
    lock = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    if not try_hold(lock):
        sys.exit(f"another process is this worker: it holds {lock_file}")
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
