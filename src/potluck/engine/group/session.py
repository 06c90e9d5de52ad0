"""The group of one quorum: its members, and which samples each worker takes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from potluck.engine.group.islands import Island
from potluck.engine.group.roster import Roster
from potluck.engine.order.position import Slice
from potluck.planning.backend_choice import BackendChoice
from potluck.planning.replanning.exchange_choice import ExchangeChoice
from potluck.planning.split import slice_of, split_by_shares


@dataclass(slots=True, kw_only=True)
class GroupSession:
    """One quorum's group, made on torchft's thread when it has formed; then only the training thread uses it."""

    roster: Roster
    quorum_id: int
    choice: BackendChoice | None = None
    """How the group exchanges gradients; None in a group that exchanges none."""
    exchange: ExchangeChoice = field(default_factory=lambda: ExchangeChoice(mode="exact", reason=""))
    """How this group exchanges."""
    island: Island | None = None
    """This worker's island, in a run with islands."""
    has_committed: bool = False
    """Whether this group has committed a step. Until then, members that were behind are being healed."""

    def part(self, step: int, batch: int, shares: Sequence[int]) -> Slice:
        """This worker's samples of a step, by the shares of all members.

        In a group's first step only members that have the state take samples: the others are healed in that step.
        """
        return self.part_of(self.roster.mine, step, batch, shares)

    def part_of(self, place: int, step: int, batch: int, shares: Sequence[int]) -> Slice:
        """The same of the member at this place in the roster."""
        roster = self.roster
        takers = list(range(len(roster.members)))
        if not self.has_committed and step == roster.step:
            takers = roster.participants()
        part = slice_of(place, batch, shares, takers)
        return Slice(step, part.start, part.stop)

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
        return len(self.roster.holders) < len(self.roster.members)

    def without(self, machines: Collection[str]) -> "GroupSession":
        """The session without the members on these machines."""
        return replace(self, roster=self.roster.without(machines))
