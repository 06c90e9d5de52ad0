"""Prometheus metrics of the host's runs; a scrape reads only what is new in each run's files."""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from potluck.core.run_folder import RunFolder
from potluck.meeting.host.runs import RunRecord
from potluck.report.followed import Followed
from potluck.report.prometheus import expose
from potluck.report.view import RunView

_TOLD_AFTER_END_S = 300.0  # time for some scrapes, so that the last values are seen


@dataclass(slots=True)
class _Told:
    run: Followed
    ended_at: float | None = None


class Metrics:
    """Follows unfinished runs; a run that was in a scrape stays for _TOLD_AFTER_END_S after its end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[tuple[str, str], _Told] = {}
        self._turn = asyncio.Lock()

    async def tell(self, records: list[RunRecord]) -> str:
        """Scrape in a thread, one at a time: the first scrape of a long run is slow, and must not take all threads."""
        async with self._turn:
            return await asyncio.to_thread(self.scrape, records)

    def scrape(self, records: Iterable[RunRecord]) -> str:
        """The text of one scrape."""
        with ExitStack() as looking:
            self._choose(list(records))
            for told in self._told.values():
                told.run.refresh()
                looking.enter_context(told.run.lock)
            runs = [told.run for told in self._told.values()]
            readable = [run.view for run in runs if run.error is None]
            return expose(readable, damaged=[run.view.folder.name for run in runs if run.error is not None])

    def _choose(self, records: list[RunRecord]) -> None:
        now = self._clock()
        for record in records:
            key = (record.name, record.id)  # another run may have the same name
            if not record.has_ended:
                told = self._told.setdefault(key, _Told(Followed(RunView(RunFolder(record.folder)))))
                told.ended_at = None
            elif key in self._told and self._told[key].ended_at is None:
                self._told[key].ended_at = now
        known = {(record.name, record.id) for record in records}
        self._told = {
            key: told
            for key, told in self._told.items()
            if key in known and (told.ended_at is None or now - told.ended_at < _TOLD_AFTER_END_S)
        }
