"""Notes that other machines' owners have sent to the owner of this gate, kept until several readers have read them."""

import asyncio
from contextlib import suppress

from potluck.gates.messages import Notes

_MOST_NOTES = 200
_WAIT_S = 5.0


class ReceivedNotes:
    """The last notes, numbered; more than one process of a machine may read them."""

    def __init__(self) -> None:
        self._notes: list[tuple[str, str]] = []
        self._last = 0
        self._came = asyncio.Event()

    def add(self, sender: str, text: str) -> None:
        self._notes = [*self._notes[1 - _MOST_NOTES :], (sender, text)]
        self._last += 1
        self._came.set()
        self._came = asyncio.Event()

    async def after(self, number: int) -> Notes:
        """The notes after a number, as soon as there is one; none after a while. A higher number is another gate's."""
        if number == self._last:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._came.wait(), _WAIT_S)
        num_new = self._last if number > self._last else self._last - max(0, number)
        return Notes(notes=tuple(self._notes[-num_new:] if num_new else ()), last=self._last)
