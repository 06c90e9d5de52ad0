"""Change notification: wakes the requests that wait for a change of the host's state."""

import asyncio
from collections.abc import Callable
from contextlib import suppress


class Changes:
    """One signal for all coroutines of this event loop that wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.count = 0
        """How often `tell` was called."""
        self.first: Callable[[], None] = lambda: None
        """Called by `tell` before it wakes the waiting coroutines."""

    def tell(self) -> None:
        """Announce a change: wake all coroutines that wait now."""
        self.count += 1
        self.first()
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, at_most_s: float) -> None:
        """Wait for the next change, at most `at_most_s`."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._event.wait(), at_most_s)
