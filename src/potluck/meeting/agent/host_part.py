"""The host's part on a joined machine: it waits while this is a successor, and is kept while this is the host."""

import time
from collections.abc import Callable

from potluck.core.shell_words import quote
from potluck.meeting.agent.standby import StandbyHost
from potluck.meeting.home import Home

_RESTART_S, _MOST_RESTART_S = 2.0, 60.0
_LASTING_S = 60.0  # one that has lived so long has begun well
_WAIT_AGAIN_S = 30.0  # one that waits has ended by itself: for want of memory, it may be


class HostPart:
    """Owns the process of the host's part, if this machine's agent has one."""

    def __init__(self, home: Home, gate: str, tell: Callable[[str], None], *, is_own: bool) -> None:
        """`is_own`: if this machine is the host, its part belongs to this agent, not to the process that started it."""
        self._home = home
        self._gate = gate
        self._tell = tell
        self._is_own = is_own
        self._standby: StandbyHost | None = None
        self._started_at = 0.0
        self._restart_s = _RESTART_S

    @property
    def service(self) -> str:
        """The socket of its HTTP service; empty until it is to serve."""
        return "" if self._standby is None else self._standby.service

    def call(self) -> StandbyHost:
        """The process that waits here; started if there is none any more. OSError if that is not possible."""
        if self._standby is None:
            standby = StandbyHost(self._home, self._gate)
            standby.start()
            self._standby, self._started_at = standby, time.monotonic()
        is_due = time.monotonic() - self._started_at > _WAIT_AGAIN_S
        if is_due and self._standby.has_ended and not self._standby.is_serving:
            self._started_at = time.monotonic()
            self._standby.start()
        return self._standby

    def serve(self, term: int, runs: dict[str, str]) -> None:
        """Be the host of this term. `runs`: folders of runs that this machine has a part in."""
        self._started_at = time.monotonic()
        self._standby = self._standby or StandbyHost(self._home, self._gate)  # kept, also if it cannot be started now
        self._standby.serve(term, runs)

    def keep(self) -> None:
        """Start it again if it has ended by itself, or with the agent that it belonged to."""
        standby = self._standby
        age_s = time.monotonic() - self._started_at
        has_ended = self._is_own if standby is None else standby.is_serving and standby.has_ended
        if not has_ended and age_s > _LASTING_S:
            self._restart_s = _RESTART_S
        if has_ended and age_s > self._restart_s:
            if standby is not None:
                self._tell(
                    "the process that is the host on this machine has ended; a new one starts\n"
                    f"  why it ended: tail {quote(standby.log)}"
                )
            self._started_at, self._restart_s = time.monotonic(), min(2 * self._restart_s, _MOST_RESTART_S)
            self._standby = standby or StandbyHost(self._home, self._gate)
            self._standby.start_again()

    def dismiss(self, *, in_order: bool = False) -> None:
        """End it; `in_order`: it pauses its runs first, if it is the host."""
        if self._standby is not None:
            self._standby.close(in_order=in_order and self._standby.is_serving)
            self._standby = None
