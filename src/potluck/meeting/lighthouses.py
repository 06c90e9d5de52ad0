"""A lighthouse for each run: membership of two runs must never mix."""

import threading
from typing import TYPE_CHECKING

from potluck.core.environment import quieten_torchft
from potluck.core.errors import MeetingError

if TYPE_CHECKING:
    from torchft.coordination import LighthouseServer


class Lighthouses:
    """Lighthouses in this process, by their port. torch is imported when the first is needed, or when warmed."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._servers: dict[int, LighthouseServer] = {}
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Import what the first run will need."""
        quieten_torchft()
        import potluck.engine.launch  # noqa: PLC0415
        import potluck.workloads.trainer  # noqa: F401, PLC0415

    def start(self, port: int = 0) -> int:
        """Start one, on a port that it had before or on a free one; returns the port."""
        quieten_torchft()
        from potluck.engine.launch import start_lighthouse  # noqa: PLC0415

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
            self._servers[chosen] = server
            return chosen

    def stop(self, port: int) -> None:
        with self._lock:
            server = self._servers.pop(port, None)
        if server is not None:
            server.shutdown()

    def stop_all(self) -> None:
        for port in list(self._servers):
            self.stop(port)
