"""Redirects what torch, torchft and Gloo print into the worker's log file, away from the terminal."""

import logging
import os
import sys
from pathlib import Path


class NativeNoise:
    """Redirects what native code writes to stderr, and the logs of torchft and torch.distributed, into a file.

    Python's own stderr (tracebacks, our lines) still reaches the terminal.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        sys.stderr.flush()
        self._terminal = os.dup(2)
        self._python_stderr = sys.stderr
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        if _writes_to(sys.stderr, 2):
            sys.stderr = os.fdopen(os.dup(self._terminal), "w", buffering=1)
        self._handler = logging.FileHandler(path)
        self._loggers = [logging.getLogger(name) for name in ("torchft", "torch.distributed")]
        for logger in self._loggers:
            logger.addHandler(self._handler)
            logger.propagate = False

    def close(self) -> None:
        """Restore stderr and the loggers."""
        for logger in self._loggers:
            logger.removeHandler(self._handler)
            logger.propagate = True
        self._handler.close()
        if sys.stderr is not self._python_stderr:
            sys.stderr.close()
            sys.stderr = self._python_stderr
        os.dup2(self._terminal, 2)
        os.close(self._terminal)


def _writes_to(stream: object, descriptor: int) -> bool:
    try:
        return stream.fileno() == descriptor  # type: ignore[attr-defined,no-any-return]
    except (AttributeError, OSError, ValueError):
        return False  # a test or a notebook has put something else there
