"""One quorum's group, from its forming until the next one's: who is in it, and which samples each worker takes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from potluck.engine.group.roster import Roster
from potluck.engine.order.position import Slice
from potluck.planning.split import slice_of, split_by_shares


@dataclass(slots=True, kw_only=True)
class GroupSession:
    """Made on torchft's thread, complete, when a process group has formed; then used by the training thread alone."""

    roster: Roster
    quorum_id: int
    has_committed: bool = False
    """Whether this group has committed a step. Until then, members that were behind are being healed."""

    def part(self, step: int, batch: int, shares: Sequence[int]) -> Slice:
        """This worker's samples of a step, by the shares of all members.

        In a group's first step they are split over those that have the state: the others get it in that step.
        """
        roster = self.roster
        takers = list(range(len(roster.members)))
        if not self.has_committed and step == roster.step:
            takers = roster.participants()
        mine = slice_of(roster.mine, batch, shares, takers)
        return Slice(step, mine.start, mine.stop)

    def evaluation_part(self, num_samples: int, shares: Sequence[int]) -> range:
        """This worker's samples of an evaluation: everybody has the state then."""
        return split_by_shares(num_samples, shares)[self.roster.mine]

    @property
    def is_behind(self) -> bool:
        """Whether this worker gets the others' state in the group's first step."""
        return not self.has_committed and self.roster.mine not in self.roster.participants()

    @property
    def heals_somebody(self) -> bool:
        """Whether a member gets another's state in the group's first step."""
        if self.has_committed:
            return False
        reference, step = self.roster.reference, self.roster.step
        return any(m.step != step or m.weights not in ("", reference.weights) for m in self.roster.members)

    def without(self, machines: Collection[str]) -> "GroupSession":
        """The same after these machines have left the ring."""
        return replace(self, roster=self.roster.without(machines))
