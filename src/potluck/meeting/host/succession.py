"""The host's side of its succession: copies for successors, and a handover to one of them."""

import asyncio
from collections.abc import Callable, Mapping

from potluck.core.errors import MeetingError
from potluck.core.words import listed
from potluck.meeting.host.changes import Changes
from potluck.meeting.host.reign import NotConfirmedError, Reign
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.runs import RunRecord
from potluck.meeting.host.state_copies import StateCopies
from potluck.meeting.succession.state_copy import HostStateCopy

_CONFIRMED_S = 1.5  # for the first confirmations of a new host, or of a host that needs a newer term
_COPIED_S = 2.0
_READY_S = 15.0
_TAKEN_S = 12.0


class HostSuccession:
    """What the coordinator knows of the host's term. `release` sends the notes of a handover, once a gate is there."""

    def __init__(
        self,
        reign: Reign,
        token: bytes,
        roster: MachineRoster,
        runs: Callable[[], Mapping[str, RunRecord]],
        num_changes: Callable[[], int],
    ) -> None:
        self.reign = reign
        self.copies = StateCopies(token, reign)
        self.release: Callable[[str], None] = lambda _: None
        self._roster = roster
        self._runs = runs
        self._num_changes = num_changes
        self._taken: tuple[tuple[int, int], HostStateCopy] | None = None

    def take(self) -> HostStateCopy:
        """The host's state now, numbered; made anew only after a change, since it lists every machine."""
        version = (self._num_changes(), self.reign.term)
        if self._taken is None or self._taken[0] != version:
            self._taken = (version, self.copies.take(self._roster, dict(self._runs())))
        return self._taken[1]

    def is_lost(self, machine: str) -> bool:
        """Whether this is a voter that does not confirm this host, and is needed or has not been heard for a while."""
        is_known = machine in self._roster.machines
        is_away = is_known and self._roster.state(machine) in ("away", "left")
        return machine in self.reign.missing() and (is_away or not is_known or not self.reign.has_lease)

    async def confirm(self, changes: Changes) -> None:
        """Wait a moment until this host may act; NotConfirmedError if it may not: what it did might be lost."""
        deadline = asyncio.get_running_loop().time() + _CONFIRMED_S
        while self.reign.replaced_by is not None or not self.reign.has_lease:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise self.reign.unconfirmed()
            await changes.wait(left_s)

    async def keep(self, changes: Changes) -> str:
        """Wait until successors have copied a change that a person asked for; a sentence if they have not in time.

        NotConfirmedError if another machine may be the host by now, which does not know of the change.
        """
        rank, reign = self.take().rank, self.reign
        if await self.copied(changes):
            return ""
        if reign.replaced_by is not None or not reign.has_lease:
            why = reign.unconfirmed()
            raise NotConfirmedError(
                f"{why.args[0]}: what you asked for was done here only", fix=f"{why.fix}; then see potluck status"
            )
        late = listed(reign.without_copy(rank, self._staying()))
        return f"{late or 'no successor'} has not copied this yet: if {reign.machine} is lost now, it was not done"

    async def copied(self, changes: Changes, machine: str | None = None, within_s: float = _COPIED_S) -> bool:
        """Wait until all successors that are here, or one machine, have a copy of the state as it is now."""
        rank, deadline = self.take().rank, asyncio.get_running_loop().time() + within_s
        while True:
            is_copied = (
                self.reign.are_copied(rank, self._staying())
                if machine is None
                else self.reign.copies.is_kept(machine, rank)
            )
            left_s = deadline - asyncio.get_running_loop().time()
            if is_copied or left_s <= 0:
                return is_copied
            await changes.wait(left_s)

    def _staying(self) -> list[str]:
        """Machines that have not been asked to leave: one that has copies nothing more."""
        return [name for name, known in self._roster.machines.items() if known.leaves_by is None]

    async def hand_over(self, machine: str, changes: Changes) -> None:
        """Make another machine the host; MeetingError if it does not become one, and then this one stays the host."""
        reign = self.reign
        if machine == reign.machine:
            raise MeetingError(f"{machine} is the host already", fix="see who is here: potluck status")
        if not reign.succession.electorates:
            raise MeetingError(
                f"{reign.machine} was started with --no-successor",
                fix=f"start it again without that: on {reign.machine}: potluck host",
            )
        if self._roster.state(machine) != "here":
            raise MeetingError(
                f"{machine} is {self._roster.state(machine)}", fix=f"on {machine}: potluck join, then try again"
            )
        await self.confirm(changes)
        reign.prefer(machine)
        changes.tell()
        if not await self.copied(changes, machine, _READY_S):
            raise MeetingError(
                f"{machine} has not copied the host's state within {_READY_S:.0f} s",
                fix=f"see what potluck join prints on {machine}, then try again",
            )
        self.release(machine)
        deadline = asyncio.get_running_loop().time() + _TAKEN_S
        while reign.replaced_by is None:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise MeetingError(
                    f"{machine} has not become the host: too few machines have agreed",
                    fix=f"see what potluck join prints on {machine}, and potluck status; then try again",
                )
            await changes.wait(min(left_s, 0.5))
