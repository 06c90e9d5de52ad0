"""A gate's process, from its owner's side: the owner starts it, sends it settings, and restarts it if it ends."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from potluck.core.kept_process import KeptProcess
from potluck.gates.messages import Links


class GateProcess(KeptProcess[Links]):
    """A gate's process, which serves listening sockets of this process."""

    def __init__(self, identity: Path, listeners: Sequence[socket.socket], tell: Callable[[str], None]) -> None:
        self._identity = identity
        self._listeners = listeners
        super().__init__(
            "potluck.gates.main",
            "gate",
            Links(links=()),
            lambda code: tell(f"the process that is this machine's gate has ended ({code}); a new one starts"),
        )

    @property
    def links(self) -> Links:
        """The state of all links that the gate wrote last."""
        return self.state

    @property
    def port(self) -> int:
        """This machine's one port."""
        return int(self._listeners[0].getsockname()[1])

    def arguments(self) -> Sequence[str]:
        return "--identity", str(self._identity), "--listen", ",".join(map(str, self.inherited()))

    def inherited(self) -> Sequence[int]:
        return [listener.fileno() for listener in self._listeners]
