"""Dials every link that is down anew when another one has come up, since the network may be back; not too often.

While many machines come, every one of them brings a link up. If each made a gate dial all that have not come yet,
dials would grow with the square of the machines.
"""

import asyncio
from collections.abc import Mapping

from potluck.gates.links import Link

_PAUSE_S = 1.0
_PAUSE_S_A_LINK = 0.02


class Hurrying:
    """All links of one gate."""

    def __init__(self, links: Mapping[str, Link]) -> None:
        self._links = links
        self._hurried_at = float("-inf")
        self._waiting: asyncio.TimerHandle | None = None

    def link_is_up(self) -> None:
        """Hurry all links that are down: now, or when the pause since the last time is over."""
        loop = asyncio.get_running_loop()
        if self._waiting is None:
            num_down = sum(not link.is_up for link in self._links.values())
            at = self._hurried_at + max(_PAUSE_S, _PAUSE_S_A_LINK * num_down)
            if at <= loop.time():
                self._hurry()
            else:
                self._waiting = loop.call_at(at, self._hurry)

    def _hurry(self) -> None:
        self._waiting = None
        self._hurried_at = asyncio.get_running_loop().time()
        for link in self._links.values():
            link.hurry()

    def close(self) -> None:
        """Hurry no link any more."""
        if self._waiting is not None:
            self._waiting.cancel()
