"""One lighthouse for each run: quorums of two runs must never mix."""

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from potluck.core.environment import quieten_torchft
from potluck.core.errors import GateError, MeetingError
from potluck.engine.group.lighthouse import start_lighthouse
from potluck.gates.exposing import GateLine

if TYPE_CHECKING:
    from torchft.coordination import LighthouseServer


class Lighthouses:
    """Lighthouses in this process, by port, each exposed through the gate to the machines of its run.

    Starting a lighthouse does not import torch, which takes seconds: after a restart of the host, runs wait for it.
    """

    def __init__(self, address: str, gate: str | None) -> None:
        self._address = address
        self._gate = gate
        self._servers: dict[int, tuple[LighthouseServer, GateLine | None]] = {}
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Import what the first run will need."""
        quieten_torchft()
        import potluck.engine.group.launch  # noqa: PLC0415
        import potluck.engine.group.switching  # noqa: PLC0415
        import potluck.workloads.trainer  # noqa: F401, PLC0415

    def start(self, run: str, port: int = 0) -> int:
        """Start a run's lighthouse on the port that it had before, or on a free one for port 0; returns the port."""
        quieten_torchft()
        with self._lock:
            if port in self._servers:
                return port
            try:
                server = start_lighthouse(f"{self._address}:{port}")
            except Exception as error:
                raise MeetingError(
                    f"a lighthouse cannot be started on {self._address}:{port}: {error}",
                    fix=f"see which program uses the port: ss -ltnp 'sport = :{port}'",
                ) from error
            chosen = int(server.address().rsplit(":", 1)[1])
            self._servers[chosen] = (server, self._expose(run, chosen))
            return chosen

    def _expose(self, run: str, port: int) -> GateLine | None:
        """Let the run's machines dial the lighthouse: their gates open stand-ins as soon as they know the run."""
        if self._gate is None:
            return None
        line = GateLine(self._gate, run)
        with suppress(GateError, OSError):  # the gate is being restarted; GateLine exposes the port again then
            line.expose({port: "host"}, waits=False)
        return line

    def stop(self, port: int) -> None:
        with self._lock:
            server, line = self._servers.pop(port, (None, None))
        if line is not None:
            line.close()
        if server is not None:
            server.shutdown()

    def stop_all(self) -> None:
        for port in list(self._servers):
            self.stop(port)
