"""Islands: workers with good links to each other, which sum gradients in every step of a round.

Every island is one member of the round's exchange. Its first worker, the leader, exchanges with the other leaders and
passes the sums on. All workers of an island have the same parameters, and know what the island has trained: if a worker
is lost, the first one that is left brings all of it to the exchange.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.distributed.distributed_c10d import BroadcastOptions

from potluck.engine.group.roster import Roster

Partition: TypeAlias = tuple[tuple[str, ...], ...]
"""Machines of each island; a machine in none is an island of its own."""


@dataclass(frozen=True, slots=True)
class Island:
    """This worker's island in one group."""

    roster: Roster
    """The island's workers."""
    places: tuple[int, ...]
    """Their places in the roster of all workers."""
    group: Any
    """The island's process group; None for a worker alone."""
    leaders: Any
    """The process group of all leaders; None if this worker is no leader."""

    @property
    def is_alone(self) -> bool:
        return self.group is None

    @property
    def is_leader(self) -> bool:
        return self.roster.mine == 0

    def pass_on(self, tensors: Sequence[Tensor], timeout: timedelta, *, is_fine: bool) -> bool:
        """Give the leader's tensors to all workers of the island; False where the leader has no sums to give."""
        if self.is_alone:
            return is_fine
        flag = torch.tensor([float(is_fine)])
        for tensor in (flag, *tensors):
            options = BroadcastOptions()
            options.rootRank, options.timeout = 0, timeout
            self.group.broadcast([tensor], options).wait()
        return bool(flag.item())


def split_into_islands(roster: Roster, partition: Partition) -> list[tuple[int, ...]]:
    """The places of each island's members, islands in the order of their first members.

    A member that is behind is an island of its own in this group: it gets the others' state while they train.
    """
    island_of = {machine: number for number, island in enumerate(partition) for machine in island}
    ready, islands = set(roster.participants()), dict[tuple[str, object], list[int]]()
    for place, member in enumerate(roster.members):
        name = ("machine", member.machine) if member.machine not in island_of else ("named", island_of[member.machine])
        islands.setdefault(name if place in ready else ("behind", place), []).append(place)
    return [tuple(places) for places in islands.values()]
