"""Keeps a host's term: looks at its lease, hears other machines' notes, and tells late ones who is the host."""

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path

from potluck.core.errors import GateError
from potluck.gates.owner_line import OwnerLine
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.candidacy import Candidacy
from potluck.meeting.succession.notes import HostIs, Known, Release, hear_notes, write_note

_LOOK_S = 0.4
_QUIET_S = 8.0  # more than the time between two polls
_MOST_TOLD = 20
_DISK_LOOK_S = 1.0
_DISK_S = 2.0
_DISK_AGAIN_S = 8.0


class ReignKeeper:
    """Runs beside the host's service until another machine is the host."""

    def __init__(self, coordinator: Coordinator, ballots: BallotFile, line: OwnerLine, folder: Path) -> None:
        self._coordinator = coordinator
        self._reign = coordinator.succession.reign
        self._line = line
        self._candidacy = Candidacy(self._reign.machine, ballots, line)
        self._is_over = threading.Event()
        self._probe = folder / "disk-probe"
        self._disk_look_at = 0.0
        self._disk_since: float | None = None
        """Since when nothing can be written to the host's folder."""
        coordinator.succession.release = self._release

    def begin(self) -> None:
        """Note this host's term on the disk, and begin to hear notes. Called on the event loop."""
        self._note()
        loop = asyncio.get_running_loop()

        def take(sender: str, note: Known) -> None:
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(self._hear, sender, note)

        threading.Thread(
            target=hear_notes, args=(self._line, take, self._is_over), name="potluck-notes", daemon=True
        ).start()

    def close(self) -> None:
        self._is_over.set()

    async def keep(self) -> str:
        """Look after the term until a newer one has another host; returns that machine."""
        while self._reign.replaced_by is None:
            with self._coordinator.troubles.survived("this host's term"):
                await self._look()
            await asyncio.sleep(_LOOK_S)
        return self._reign.replaced_by

    async def _look(self) -> None:
        reign, coordinator = self._reign, self._coordinator
        try:
            touch = await asyncio.to_thread(self._line.touch)
        except GateError:  # it is being restarted
            return
        machines = [one.machine for one in coordinator.roster.members()]
        was_confirmed = reign.has_lease
        if reign.settle(touch, machines):
            self._note()
            coordinator.changes.tell()
        if was_confirmed != reign.has_lease:
            coordinator.changes.tell()
        if not reign.has_lease and (won := self._candidacy.look(coordinator.succession.take().rank)):
            reign.term = won
            self._note()
            coordinator.changes.tell()
        if reign.has_lease:
            await asyncio.to_thread(self._tell_quiet_ones)
            await asyncio.to_thread(self._try_disk)

    def _try_disk(self) -> None:
        """Give the host's part away when nothing can be written here any more: runs would lose their files."""
        now = time.monotonic()
        if now < self._disk_look_at:
            return
        self._disk_look_at = now + _DISK_LOOK_S
        try:
            self._probe.touch(mode=0o600)
            self._probe.write_text("a host that cannot write this file hands over\n")
        except OSError as error:
            if self._disk_since is None:
                self._disk_since = now
            if now - self._disk_since > _DISK_S and (heirs := self._heirs()):
                self._disk_since = now + _DISK_AGAIN_S
                self._coordinator.troubles.note(f"this host's disk, so that {heirs[0]} is to be the host", error)
                self._release(heirs[0])
        else:
            self._disk_since = None

    def _heirs(self) -> list[str]:
        """Successors that are here and have a copy of the state."""
        here = () if self._reign.touch is None else self._reign.touch.confirmed_by
        return [name for name in self._reign.succession.successors if name in here and self._reign.copies.get(name)]

    def _note(self) -> None:
        """Write the orders that the others get to this machine's ballot, too."""
        if self._reign.succession.electorates:
            self._candidacy.follow(self._coordinator.shared.fresh())

    def _tell_quiet_ones(self) -> None:
        """Tell machines that have not asked for a while that this one is the host."""
        since = time.time() - _QUIET_S
        machines = self._coordinator.roster.machines
        quiet = [name for name, known in machines.items() if known.last_heard < since and name != self._reign.machine]
        note = write_note(HostIs(term=self._reign.term))
        for name in quiet[:_MOST_TOLD]:
            with suppress(GateError):
                self._line.say(name, note)

    def _release(self, machine: str) -> None:
        """Tell all voters that `machine` shall be the next host."""
        self._candidacy.release(machine)
        note = write_note(Release(term=self._reign.term, to=machine))
        voters = [name for name in self._reign.succession.voters() if name not in (self._reign.machine, machine)]
        for name in [*voters, machine]:  # the successor last: it asks the others for their votes at once
            with suppress(GateError):
                self._line.say(name, note)

    def _hear(self, sender: str, note: Known) -> None:
        with self._coordinator.troubles.survived("a note about the host"):
            if isinstance(note, HostIs):
                if note.term > self._reign.term and sender != self._reign.machine:
                    self._reign.replaced_by = sender
                    self._coordinator.changes.tell()
                elif note.term < self._reign.term:
                    self._line.say(sender, write_note(HostIs(term=self._reign.term)))
                return
            self._candidacy.hear(sender, note, self._coordinator.succession.take().rank)
