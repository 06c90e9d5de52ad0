"""The host's own parity reading: computed once, when the first machine with other versions asks to join."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

from potluck.core.errors import MeetingError, PotluckError
from potluck.machine.parity import ParityReading


class OwnParity:
    """Computes the reading in a thread, beside the service; a reading that failed is tried again at the next join."""

    def __init__(self, read: Callable[[], ParityReading], machine: str) -> None:
        self._read = read
        self._machine = machine
        self._reading: Future[ParityReading] | None = None

    def begin(self) -> None:
        """Start computing, unless the reading is there or under way: the joining machine computes its own meanwhile."""
        if self._reading is None or (self._reading.done() and self._reading.exception() is not None):
            self._reading = Future()
            # A daemon: importing torch may take a minute, and the host may be asked to end before.
            threading.Thread(target=self._compute, args=(self._reading,), name="potluck-parity", daemon=True).start()

    async def get(self) -> ParityReading:
        """The reading, as soon as it is there; `begin` must have been called."""
        assert self._reading is not None
        try:
            return await asyncio.shield(asyncio.wrap_future(self._reading))
        except PotluckError as error:
            raise MeetingError(
                f"{self._machine} cannot check a machine with other versions: {error.args[0]}",
                fix=f"on {self._machine}: {error.fix}",
            ) from None

    def _compute(self, reading: "Future[ParityReading]") -> None:
        try:
            reading.set_result(self._read())
        except BaseException as error:  # noqa: BLE001  the request that waits for the reading gets the error
            reading.set_exception(error)
