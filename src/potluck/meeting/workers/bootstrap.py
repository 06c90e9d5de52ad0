"""Runs in the worker: start and end of a fork, so that it behaves like a program that was started by itself.

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
    """Run `function` in a fork, with the exit codes and exit handlers that a program would have."""
    os.setsid()
    atexit._clear()  # exit handlers of the fork server must not run here
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
        sys.exit(128 + signal.SIGINT)  # torch would take KeyboardInterrupt for success
    except Exception as error:
        sys.last_value = error  # exit handlers look here for the exception that ended a program
        with suppress(OSError):
            traceback.print_exc()  # torch writes the exception to a file beside the log only
        raise
    finally:
        atexit._run_exitfuncs()  # multiprocessing runs none; a run that the script has not closed is closed here
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # a full disk must not change the exit code
                stream.flush()


def _hold(lock_file: str) -> None:
    """Lock the file until this process ends, and write its process id there."""
    lock = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    if not try_hold(lock):
        sys.exit(f"another process is this worker: it holds {lock_file}")
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
