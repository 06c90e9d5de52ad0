"""The agent of the host's own machine: a child process that runs as long as the host."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from potluck.meeting.host.last_resort import end_tree
from potluck.meeting.wire import AGENT_REFUSED, GOODBYE

_END_S = 2.5
_END_ELSEWHERE_S = 12.0  # where the agent keeps the host's part, whose runs pause first
_AGAIN_S = 10.0


class AgentProcess:
    """Starts the agent, restarts it if it has ended, and ends it with the host."""

    def __init__(
        self,
        arguments: list[str],
        log: Path,
        tell: Callable[[str], None],
        is_host_elsewhere: Callable[[], bool] = lambda: False,
    ) -> None:
        self._command = [sys.executable, "-m", "potluck.meeting.agent.local_agent", *arguments]
        self._log = log
        self._is_host_elsewhere = is_host_elsewhere
        self._tell = tell
        self._started_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def start(self) -> None:
        self._started_at = time.monotonic()
        # The agent leaves when its stdin closes, so it ends with this process. It logs: the terminal shows the roster.
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [*self._command, *(["--serves"] if self._is_host_elsewhere() else [])],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def has_begun(self) -> bool:
        return self._process is not None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def keep(self) -> None:
        """Restart an agent that has ended, unless it was started within the last _AGAIN_S.

        While another machine is the host, the agent may have left it, or be let in no more: that is said once.
        """
        if self._process is None or self._process.poll() is None or self._is_over:
            return
        if self._is_host_elsewhere() and self._process.returncode in (0, AGENT_REFUSED):
            self._is_over = True
            why = "this machine has left its host" if self._process.returncode == 0 else self._last_words()
            self._tell(f"{why}\n  fix: to join again, end this with Ctrl-C, then: potluck join")
            return
        if time.monotonic() - self._started_at <= _AGAIN_S:
            return
        self._tell(f"the process that works for this machine has ended ({self._process.returncode}); a new one starts")
        self.start()

    def end(self) -> None:
        """Ask the agent to leave, and end it if it does not."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended already
            self._process.stdin.write(GOODBYE)
            self._process.stdin.close()
        try:
            self._process.wait(_END_ELSEWHERE_S if self._is_host_elsewhere() else _END_S)
        except subprocess.TimeoutExpired:
            end_tree(self._process)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").splitlines()
            return next((line for line in reversed(lines) if line and not line.startswith(" ")), "")
        return "this machine's host does not let it in any more"
