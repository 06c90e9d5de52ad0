"""Reports long waits for other workers, so that the host or a person can act."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from potluck.core.errors import PotluckError

_TELL_AFTER_S = 8.0
_TELL_AGAIN_S = 10.0
_LOOK_S = 1.0


class LongWaits:
    """Sums up the waits since the last committed step; calls `tell(seconds, what)` from `tell_after_s` on.

    `tell` runs on a thread of its own, because the training thread may be blocked in native code.
    """

    def __init__(self, tell: Callable[[float, str], None], tell_after_s: float = _TELL_AFTER_S) -> None:
        self._tell = tell
        self._tell_after_s = tell_after_s
        self._waited_s = 0.0
        self._what = ""
        self._since: float | None = None
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Count the time inside as a wait for `what`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="potluck-waits", daemon=True)
            self._thread.start()
        self._what, self._since = what, time.monotonic()
        try:
            yield
        finally:
            self._waited_s += time.monotonic() - self._since
            self._since = None

    def committed(self) -> None:
        """A step is committed: sum up from 0 again."""
        self._waited_s = 0.0

    def close(self) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        told_at = 0.0
        while not self._is_over.wait(_LOOK_S):
            since, now = self._since, time.monotonic()
            seconds = self._waited_s + (0.0 if since is None else now - since)
            if since is not None and seconds > self._tell_after_s and now - told_at > _TELL_AGAIN_S:
                told_at = now
                with suppress(PotluckError):  # the run was closed meanwhile
                    self._tell(seconds, self._what)
