"""The connection for letters (control messages) between two gates, with pings that also confirm the host's term."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import msgspec

from potluck.gates.lease import HostLease, boot_time
from potluck.gates.messages import Frame, Letter, Ping, Pong
from potluck.gates.secure import SecureEnd

_PING_S = 1.0
SILENCE_S = 5.0
_RACE_S = 3.0
_MOST_LETTERS = 1000
_NO_TERM = -1  # of a ping that asks for no confirmation
_MOST_PINGS = 8  # on their way: a slow link answers a ping after the next one was sent


class Correspondence:
    """Sends and receives letters over one connection, for as long as the other side is heard."""

    def __init__(
        self,
        end: SecureEnd,
        *,
        machine: str,
        dialled: bool,
        place: str,
        lease: HostLease,
        hear: Callable[[Letter], None],
    ) -> None:
        self.dialled = dialled
        self.place = place
        self.address = end.socket.getpeername()[0]
        self.round_trip_s: float | None = None
        self.began = time.monotonic()
        self.confirmed = (0, -math.inf)
        """The term and the time of the last ping that the other machine has confirmed."""
        self.reached = -math.inf
        """When the last ping was sent that the other machine has answered."""
        self._end = end
        self._machine = machine
        self._lease = lease
        self._hear = hear
        self._letters: asyncio.Queue[msgspec.Struct] = asyncio.Queue()
        self._heard = time.monotonic()
        self._asked: dict[int, tuple[float, int]] = {}
        self._is_over = asyncio.Event()

    @property
    def is_young(self) -> bool:
        """Whether the connection is so new that the other machine may have dialled at the same moment."""
        return time.monotonic() - self.began < _RACE_S

    def stop(self) -> None:
        self._is_over.set()

    def send(self, message: msgspec.Struct) -> None:
        self._letters.put_nowait(message)
        if self._letters.qsize() > _MOST_LETTERS:  # the other side does not read
            self.stop()

    async def hold(self) -> None:
        """Send, receive and ping until either side ends the connection."""
        parts = (self._read(), self._write(), self._ping(), self._is_over.wait())
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._end.close()

    async def _read(self) -> None:
        while True:
            message: Any = await self._end.receive(Frame)
            self._heard = time.monotonic()
            match message:
                case Ping(number=number, term=term, binds=binds):
                    self._lease.heard_ping(term, binds=binds)
                    self.send(Pong(number=number, term=self._lease.promised))
                case Pong(number=number, term=term):
                    self._lease.heard_pong(term)
                    if (asked := self._asked.pop(number, None)) is not None:
                        self.round_trip_s, self.reached = boot_time() - asked[0], asked[0]
                        if term == asked[1]:
                            self.confirmed = (term, asked[0])
                case Letter():
                    self._hear(message)

    async def _write(self) -> None:
        while True:
            await self._end.send(await self._letters.get())

    async def _ping(self) -> None:
        number = 0
        while time.monotonic() - self._heard < SILENCE_S:
            number += 1
            term, binds = self._lease.term, self._lease.binds()
            self._asked = {
                **dict(list(self._asked.items())[-_MOST_PINGS:]),
                number: (boot_time(), term if binds else _NO_TERM),
            }
            self.send(Ping(number=number, term=term, binds=binds))
            await asyncio.sleep(self._lease.ping_s(self._machine, _PING_S))
