"""What the training loop needs to know of an open round; without rounds, none is ever open."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from potluck.engine.order.position import Slice


class RoundView(Protocol):
    """A group's open round, if one is open."""

    @property
    def is_open(self) -> bool:
        """Whether the open step is a local step of a round: it changes this worker's parameters before any vote."""

    @property
    def moves(self) -> bool:
        """Whether the open local step changes this worker's parameters: it has samples, and its island has the sums."""

    def upcoming(self) -> list[Slice]:
        """This worker's slices in the rest of the open round, for reading ahead."""

    def leave(self) -> None:
        """Go back to the beginning of the open round, if there is one: this worker's steps in it do not count."""

    def global_parameters(self) -> AbstractContextManager[None]:
        """Inside, the model has the parameters that all workers have in common."""


class NoRound:
    """The RoundView of a group that exchanges after every step."""

    is_open = False
    moves = True

    def upcoming(self) -> list[Slice]:
        return []

    def leave(self) -> None:
        """Nothing to do: no round is open."""

    def global_parameters(self) -> AbstractContextManager[None]:
        return nullcontext()


NO_ROUND = NoRound()
