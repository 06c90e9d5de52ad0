"""One worker's part of an open round: the local steps still to do, and what it has done."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from potluck.engine.group.gradients import Contribution
from potluck.engine.group.islands import Island
from potluck.engine.group.protocol import Announcement, Total
from potluck.engine.order.pieces import Piece, cut, joined
from potluck.engine.order.position import Slice


@dataclass(slots=True, kw_only=True)
class OpenRound:
    """A round from its first local step to its exchange; samples are positions in the round."""

    start: int
    """The committed step that the round begins with."""
    num_steps: int
    began_at: float
    usual_batch: int
    """Samples of a local step, about."""
    island: Island | None = None
    """The workers that make every local step together with this one; None if it makes them alone."""
    is_again: bool = False
    """Whether its exchange has failed: this worker trains what a lost worker has not delivered, and exchanges again."""
    is_summed: bool = False
    """Whether the island's sums of the open local step are complete."""
    current: Slice = field(default_factory=lambda: Slice(0, 0, 0))
    """This worker's samples of the open local step."""
    done: list[Piece] = field(default_factory=list)
    """What this worker's parameters have been trained on."""
    weight: float = 0.0
    loss_sum: float = 0.0
    scale: float = 1.0
    _to_do: deque[tuple[Slice, tuple[Piece, ...]]] = field(default_factory=deque)
    """For each local step still to do: this worker's samples, and those of all workers of its island."""

    def assign(self, own: Piece, island: Island | None, of_island: Sequence[Piece]) -> None:
        """Plan a local step for each step of the round. `of_island`: the pieces of all workers of the island."""
        self.island = island
        parts = [list(cut(piece, self.num_steps)) for piece in (own, *of_island)]
        if own[0] == own[1] and island is None:
            parts = [[own]]
        steps = [(Slice(self.start, *mine), tuple(others) or (mine,)) for mine, *others in zip(*parts, strict=True)]
        self._to_do = deque(steps)

    def assign_rest(self, pieces: Sequence[Piece]) -> None:
        """After a loss: plan as many local steps as these samples need, alone."""
        self.is_again, self.island = True, None
        parts = [part for piece in pieces for part in cut(piece, -(-(piece[1] - piece[0]) // self.usual_batch))]
        # A worker without samples computes one, whose gradient does not count, on its way to the exchange.
        self._to_do = deque((Slice(self.start, *part), (part,)) for part in parts or [(0, 0)])

    def next_slice(self) -> Slice:
        """Begin the next local step."""
        self.current, self.is_summed = self._to_do[0][0], False
        return self.current

    @property
    def pieces_of_step(self) -> tuple[Piece, ...]:
        """The samples of the open local step, of all workers of the island."""
        return self._to_do[0][1]

    def upcoming(self) -> list[Slice]:
        """The local steps after the open one."""
        return [part for part, _ in list(self._to_do)[1:]]

    def end_step(self, total: Total) -> None:
        """This worker's parameters have moved by the open local step; `total`: its sums, over the island."""
        _, pieces = self._to_do.popleft()
        trained = [piece for piece in pieces if piece[0] < piece[1]]
        if trained:
            self.weight += total.weight
            self.loss_sum += total.loss_sum
            self.scale = total.scale
            self.done = joined([*self.done, *trained])

    def break_off(self) -> None:
        """No further local step, until a new group has formed."""
        self.is_again = True
        self._to_do.clear()

    @property
    def is_trained(self) -> bool:
        """Whether no local step is left."""
        return not self._to_do

    def contribution(self, is_last: bool, left_out: int, *, counts: bool) -> Contribution:
        """What this worker brings to the exchange; nothing if the leader of its island brings it."""
        pieces = tuple(self.done) if counts else ()
        own = Announcement(self.weight, self.loss_sum, self.scale, is_last, left_out)
        return Contribution(self.start, pieces, own)
