"""Waiting for news: whoever waits is woken when something changes."""

import asyncio
from collections.abc import Callable
from contextlib import suppress


class Changes:
    """One signal for all that wait in this event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.count = 0
        """How often somebody has told of one."""
        self.first: Callable[[], None] = lambda: None
        """Called before anybody is woken."""

    def tell(self) -> None:
        """Wake everybody who waits now."""
        self.count += 1
        self.first()
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, at_most_s: float) -> None:
        """Wait for the next change, or that long."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._event.wait(), at_most_s)
