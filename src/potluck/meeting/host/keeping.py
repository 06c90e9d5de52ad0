"""Keeps a host's term: looks at its lease, hears other machines' notes, and tells late ones who is the host."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from potluck.core.errors import GateError
from potluck.gates.lease import may_decide
from potluck.gates.owner_line import OwnerLine
from potluck.meeting.access.gating import as_electorates
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.candidacy import Candidacy
from potluck.meeting.succession.finding import HostClaims
from potluck.meeting.succession.notes import Follows, HostIs, Known, Vote, WhoIsHost, hear_notes, write_note
from potluck.meeting.wire import Succession

_T = TypeVar("_T")
_LOOK_S = 0.4
_QUIET_S = 8.0  # more than the time between two polls
_MOST_TOLD = 20
_DISK_LOOK_S = 1.0
_DISK_S = 2.0
_DISK_AGAIN_S = 30.0  # a handover costs seconds, also one that nobody can take


class ReignKeeper:
    """Runs beside the host's service until another machine is the host."""

    def __init__(self, coordinator: Coordinator, ballots: BallotFile, line: OwnerLine, folder: Path) -> None:
        self._coordinator = coordinator
        self._reign = coordinator.succession.reign
        self._line = line
        self._candidacy = Candidacy(self._reign.machine, ballots, line)
        self._ballots = ballots
        self._told_promise = ballots.ballot.promised
        self._claims = HostClaims()
        self._is_over = threading.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="potluck-term")
        self._has_vote = asyncio.Event()
        self._noted: Succession | None = None
        """What the ballot on this machine's disk says."""
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
        self._thread.shutdown(wait=False)

    async def keep(self) -> str:
        """Look after the term until a newer one has another host; returns that machine."""
        while self._reign.replaced_by is None:
            with self._coordinator.troubles.survived("this host's term"):
                await self._look()
            with suppress(asyncio.TimeoutError):  # between two parts of an election this host may not act: no pause
                await asyncio.wait_for(self._has_vote.wait(), _LOOK_S)
            self._has_vote.clear()
        return self._reign.replaced_by

    async def _look(self) -> None:
        reign, coordinator = self._reign, self._coordinator
        try:
            touch = await self._aside(partial(self._line.touch, by_host=True))
        except GateError:  # it is being restarted
            return
        machines = [one.machine for one in coordinator.roster.members()]
        was_confirmed = reign.has_lease
        is_news = reign.settle(touch, machines) or was_confirmed != reign.has_lease
        if reign.succession != self._noted:
            with coordinator.troubles.survived("this host's term"):  # with a full disk it can still be given away
                self._note()
                is_news = True
        if is_news:
            coordinator.changes.tell()
        # Machines may take part in a newer term that nobody has won, with or without this host's lease.
        needs_term = not reign.has_lease or touch.newest_term > reign.term
        if needs_term and (won := self._candidacy.look(coordinator.succession.take().rank)):
            reign.term = won
            self._note()
            coordinator.changes.tell()
        self._tell_of_promise()
        if reign.has_lease:
            await self._aside(self._tell_quiet_ones)
            rank = coordinator.succession.take().rank
            if (heir := await self._aside(lambda: self._try_disk(rank))) is not None:
                self._release(heir)

    async def _aside(self, work: Callable[[], _T]) -> _T:
        """Run in a thread that no request of a user can take: the gate counts a host that does not tend it as gone."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _tell_of_promise(self) -> None:
        """Let the owner of this machine's gate know of a new promise: a gate that starts again must know it."""
        promised = self._ballots.ballot.promised
        if promised != self._told_promise:
            self._told_promise = promised
            self._coordinator.changes.tell()

    def _try_disk(self, rank: int) -> str | None:
        """Whom to give the host's part when nothing can be written here any more: runs would lose their files."""
        now = time.monotonic()
        if now < self._disk_look_at:
            return None
        self._disk_look_at = now + _DISK_LOOK_S
        try:
            self._probe.touch(mode=0o600)
            self._probe.write_text("a host that cannot write this file hands over\n")
        except OSError as error:
            if self._disk_since is None:
                self._disk_since = now
            if now - self._disk_since > _DISK_S and (heirs := self._heirs(rank)):
                self._disk_since = now + _DISK_AGAIN_S
                self._coordinator.troubles.note(f"this host's disk, so that {heirs[0]} is to be the host", error)
                return heirs[0]
        else:
            self._disk_since = None
        return None

    def _heirs(self, rank: int) -> list[str]:
        """Successors that are here and have this state on a disk that they can write, if the others can elect one.

        This machine cannot vote: its vote cannot be written. Whoever gives the host's part to a machine whose disk is
        full as well leaves nobody who can be the host.
        """
        here = () if self._reign.touch is None else self._reign.touch.confirmed_by
        others = [name for name in here if name != self._reign.machine]
        if not all(may_decide(one, others) for one in as_electorates(self._reign.succession)):
            return []
        return [
            one for one in self._reign.succession.successors if one in here and self._reign.copies.is_kept(one, rank)
        ]

    def _note(self) -> None:
        """Write the orders that the others get to this machine's ballot, too."""
        if self._reign.succession.electorates:
            self._candidacy.follow(self._coordinator.shared.fresh())
        self._noted = self._reign.succession

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
        """Stop acting as the host, and tell all voters that `machine` shall be it. GateError: nothing is done."""
        note = write_note(self._candidacy.give_away(machine))
        self._tell_of_promise()
        voters = [name for name in self._reign.succession.voters() if name not in (self._reign.machine, machine)]
        for name in [*voters, machine]:  # the successor last: it asks the others for their votes at once
            with suppress(GateError):
                self._line.say(name, note)

    def _hear(self, sender: str, note: Known) -> None:
        with self._coordinator.troubles.survived("a note about the host"):
            if isinstance(note, HostIs | Follows):
                self._hear_of_host(sender, note)
                return
            if isinstance(note, WhoIsHost):
                self._line.say(sender, write_note(Follows(term=self._reign.term, host=self._reign.machine)))
                return
            self._candidacy.hear(sender, note, self._coordinator.succession.take().rank)
            self._tell_of_promise()
            if isinstance(note, Vote):
                self._has_vote.set()

    def _hear_of_host(self, sender: str, note: HostIs | Follows) -> None:
        """Another machine names a host: that one takes over if its term is newer, and its word may be believed."""
        if note.term < self._reign.term and isinstance(note, HostIs):
            self._line.say(sender, write_note(HostIs(term=self._reign.term)))
        orders = self._coordinator.shared.gate()
        found = self._claims.hear(sender, note, orders)
        if found is not None and found.host != self._reign.machine:
            self._reign.newer = found
            self._coordinator.changes.tell()
        elif found is None:
            self._claims.ask(self._line, orders)
