"""The bench: a machine that would slow the run stays beside it, follows its state, and measures itself now and then."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from potluck.core.errors import GroupError
from potluck.engine.group.state_transfer import FINAL, NEWEST, BusyError

_PROBE_EVERY_S = 10.0
_FIRST_PROBE_S = 3.0  # the choice of machines rests on few steps: it is checked soon
_LOOK_EVERY_S = 0.2
_SILENT_S = 2.0  # without any answer, for so long: the others are gone
_COPY_EVERY_S = 1.0
_COPY_PART = 0.02  # of the time at most goes into copies: the worker that trains has to make them
_LEAST_PACE_S = 2.0  # between two states that tell how fast the others are


class Bench:
    """Where a worker waits for its turn to practise: one step of its own, whose result nobody uses.

    `is_heir`: one machine trains alone, and this one goes on if that machine is lost. So it copies the state often.
    """

    def __init__(
        self,
        peers: Sequence[str],
        fetch: Callable[[str, int], dict[str, Any]],
        num_samples: int,
        *,
        is_heir: bool = False,
    ) -> None:
        self.num_samples = num_samples
        """How many a practice step has: as many as the worker took last."""
        self.newest: dict[str, Any] | None = None
        """The newest state of the others that is here."""
        self.copy_s = 0.0
        """What the last copy of their state took."""
        self._peers = peers
        self._fetch = fetch
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
        """The others are gone before the end: there is nobody left to be slowed down."""
        is_silent = self._silent_since is not None and time.monotonic() - self._silent_since > _SILENT_S
        return (is_silent or not self._following.is_alive()) and self._final is None

    @property
    def _has_ended(self) -> bool:
        return self.is_deserted or self._final is not None

    def is_over(self, last_step: int | None) -> bool:
        """Training has ended, and its last state is here."""
        return self._final is not None and (last_step is None or int(self._final["step"]) >= last_step)

    def is_left_to_me(self, last_step: int | None) -> bool:
        """The others are gone, or the last of them stops before the end and has handed its state over."""
        return self.is_deserted or (self._final is not None and not self.is_over(last_step))

    def wait(self, is_stopping: Callable[[], bool]) -> None:
        """Until it is time to practise again, or to stop, or all is over; then the newest state is here."""
        until = time.monotonic() + min(self._next_probe_s, _PROBE_EVERY_S)
        self._next_probe_s = _PROBE_EVERY_S
        while time.monotonic() < until and not (self._has_ended or is_stopping()):
            if self._is_heir and time.monotonic() >= self._copy_at:
                self.copy()
            time.sleep(_LOOK_EVERY_S)
        while not (is_stopping() or self.is_deserted or self.copy()):
            time.sleep(_LOOK_EVERY_S)

    def copy(self) -> bool:
        """Fetch the others' state; False if none of them gives it now."""
        if self._final is not None:
            self.newest = self._final
            return True
        began = time.monotonic()
        for peer in self._peers:
            try:
                self.newest = self._fetch(peer, NEWEST)
            except BusyError:
                self._silent_since = None  # it is there, between two steps
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
        """What a step takes the others: the fastest stretch of the last few, so that an evaluation does not count."""
        stretches = [
            (later_at - at) / (later - step) for (at, step), (later_at, later) in pairwise(self._seen) if later > step
        ]
        return min(stretches[-3:], default=None)

    def _note(self, at: float, step: int) -> None:
        if not self._seen or at - self._seen[-1][0] >= _LEAST_PACE_S:
            self._seen.append((at, step))
            del self._seen[:-4]

    def _follow(self) -> None:
        """Wait with one peer after the other for the end of training."""
        for peer in self._peers:
            with suppress(OSError, GroupError):
                self._final = self._fetch(peer, FINAL)
                return

    def begin(self) -> None:
        """The practice step begins."""
        self._began_at = time.monotonic()

    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began_at
