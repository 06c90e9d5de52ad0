"""The group of one quorum: its members, and which samples each worker takes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from potluck.engine.group.roster import Roster
from potluck.engine.order.position import Slice
from potluck.planning.backend_choice import BackendChoice
from potluck.planning.split import slice_of, split_by_shares


@dataclass(slots=True, kw_only=True)
class GroupSession:
    """One quorum's group, made on torchft's thread when it has formed; then only the training thread uses it."""

    roster: Roster
    quorum_id: int
    choice: BackendChoice | None = None
    """How the group exchanges gradients; None in a group that exchanges none."""
    has_committed: bool = False
    """Whether this group has committed a step. Until then, members that were behind are being healed."""

    def part(self, step: int, batch: int, shares: Sequence[int]) -> Slice:
        """This worker's samples of a step, by the shares of all members.

        In a group's first step only members that have the state take samples: the others are healed in that step.
        """
        roster = self.roster
        takers = list(range(len(roster.members)))
        if not self.has_committed and step == roster.step:
            takers = roster.participants()
        mine = slice_of(roster.mine, batch, shares, takers)
        return Slice(step, mine.start, mine.stop)

    def evaluation_part(self, num_samples: int, shares: Sequence[int]) -> range:
        """This worker's samples of an evaluation; all members take samples, because all have the state."""
        return split_by_shares(num_samples, shares)[self.roster.mine]

    @property
    def is_behind(self) -> bool:
        """Whether this worker is healed in the group's first step."""
        return not self.has_committed and self.roster.mine not in self.roster.participants()

    @property
    def heals_somebody(self) -> bool:
        """Whether any member is healed in the group's first step."""
        if self.has_committed:
            return False
        reference, step = self.roster.reference, self.roster.step
        return any(m.step != step or m.weights not in ("", reference.weights) for m in self.roster.members)

    def without(self, machines: Collection[str]) -> "GroupSession":
        """The session without the members on these machines."""
        return replace(self, roster=self.roster.without(machines))
