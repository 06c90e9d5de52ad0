"""The bench: a machine that would slow the run copies the run's state, and measures itself now and then."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from potluck.core.errors import GroupError
from potluck.engine.group.state_transfer import FINAL, NEWEST, BusyError

_PROBE_EVERY_S = 10.0
_FIRST_PROBE_S = 3.0  # the bench decision rests on few steps: it is checked soon
_LOOK_EVERY_S = 0.2
_SILENT_S = 2.0  # no peer has answered for so long: the others are gone
_COPY_EVERY_S = 1.0
_COPY_PART = 0.02  # the largest part of the time for copies: they slow the worker that trains
_LEAST_PACE_S = 2.0  # between two copies from which the others' step time is computed


class Bench:
    """Copies the state of the workers that train, and waits until this worker's next probe step is due.

    `is_heir`: one machine trains alone, and this worker is the fastest one on the bench. It copies often, so that the
    benched machines have a recent state to go on from if that machine is lost.
    """

    def __init__(
        self,
        peers: Sequence[str],
        fetch: Callable[[str, int], dict[str, Any]],
        num_samples: int,
        *,
        stop_following: Callable[[], None] = lambda: None,
        is_heir: bool = False,
    ) -> None:
        self.num_samples = num_samples
        """The samples of a probe step: as many as the worker's last share."""
        self.newest: dict[str, Any] | None = None
        """The newest copy of the others' state."""
        self.copy_s = 0.0
        """Seconds that the last copy took."""
        self._peers = peers
        self._fetch = fetch
        self._stop_following = stop_following
        self._is_closed = False
        self._is_heir = is_heir
        self._next_probe_s = _FIRST_PROBE_S
        self._began_at = 0.0
        self._copy_at = 0.0
        self._silent_since: float | None = None
        self._seen: list[tuple[float, int]] = []
        self._final: dict[str, Any] | None = None
        self._following = threading.Thread(target=self._follow, name="potluck-bench", daemon=True)
        self._following.start()

    @property
    def is_deserted(self) -> bool:
        """Whether the others are gone before the end of training."""
        is_silent = self._silent_since is not None and time.monotonic() - self._silent_since > _SILENT_S
        return (is_silent or not self._following.is_alive()) and self._final is None

    @property
    def _has_ended(self) -> bool:
        return self.is_deserted or self._final is not None

    def is_over(self, last_step: int | None) -> bool:
        """Whether training has ended, and its final state is here."""
        return self._final is not None and (last_step is None or int(self._final["step"]) >= last_step)

    def is_left_to_me(self, last_step: int | None) -> bool:
        """Whether the benched workers go on alone: the others are gone, or the last one stopped and sent its state."""
        return self.is_deserted or (self._final is not None and not self.is_over(last_step))

    def wait(self, is_stopping: Callable[[], bool]) -> None:
        """Wait until a probe step is due or the others have ended, then copy their newest state. A stop ends both."""
        until = time.monotonic() + min(self._next_probe_s, _PROBE_EVERY_S)
        self._next_probe_s = _PROBE_EVERY_S
        while time.monotonic() < until and not (self._has_ended or is_stopping()):
            if self._is_heir and time.monotonic() >= self._copy_at:
                self.copy()
            time.sleep(_LOOK_EVERY_S)
        while not (is_stopping() or self.is_deserted or self.copy()):
            time.sleep(_LOOK_EVERY_S)

    def copy(self) -> bool:
        """Fetch the others' state; False if no peer gives it now."""
        if self._final is not None:
            self.newest = self._final
            return True
        began = time.monotonic()
        for peer in self._peers:
            try:
                self.newest = self._fetch(peer, NEWEST)
            except BusyError:
                self._silent_since = None  # the peer is alive, but its state is changing
                return False
            except (OSError, GroupError):
                continue
            now = time.monotonic()
            self.copy_s, self._silent_since = now - began, None
            self._copy_at = now + max(_COPY_EVERY_S, self.copy_s / _COPY_PART)
            self._note(began, int(self.newest["step"]))
            return True
        self._silent_since = self._silent_since or began
        return False

    @property
    def step_s(self) -> float | None:
        """Seconds of the others' steps: the fastest of the last intervals, so that an evaluation does not count."""
        stretches = [
            (later_at - at) / (later - step) for (at, step), (later_at, later) in pairwise(self._seen) if later > step
        ]
        return min(stretches[-3:], default=None)

    def _note(self, at: float, step: int) -> None:
        if not self._seen or at - self._seen[-1][0] >= _LEAST_PACE_S:
            self._seen.append((at, step))
            del self._seen[:-4]

    def _follow(self) -> None:
        """Wait for the final state, from the first peer that gives it."""
        for peer in self._peers:
            if self._is_closed:
                return
            with suppress(OSError, GroupError):
                self._final = self._fetch(peer, FINAL)
                return

    def close(self) -> None:
        """Stop waiting for the final state: a process whose threads still fill tensors at its exit is aborted."""
        self._is_closed = True
        while self._following.is_alive():  # it may be about to ask the next peer
            self._stop_following()
            self._following.join(_LOOK_EVERY_S)

    def begin(self) -> None:
        """Start timing the probe step."""
        self._began_at = time.monotonic()

    def seconds(self) -> float:
        """Seconds since the probe step began."""
        return time.monotonic() - self._began_at
