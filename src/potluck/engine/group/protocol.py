"""The workers that train together, as one of them sees them."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from potluck.engine.order.position import Slice


class Lost(Exception):  # noqa: N818  not an error of the user's
    """A peer was lost while numbers were added up."""


class Total(NamedTuple):
    """What all workers brought to a step."""

    weight: float
    loss_sum: float
    scale: float
    """The loss scale of fp16: that of the workers who brought samples, which is one."""
    left_out: float = 0.0
    """Batches that the workers' scripts have left out, on average."""


class Group(Protocol):
    """What a step needs from the others: who takes which samples, summed gradients, one verdict."""

    @property
    def writes(self) -> bool:
        """Whether this worker writes the checkpoints."""

    @property
    def waits(self) -> bool:
        """Whether a step may have to wait for other workers."""

    @property
    def is_benched(self) -> bool:
        """Whether this worker only follows: what its script says of the run, the others say too."""

    @property
    def quorum_id(self) -> int:
        """The number of the quorum at hand, 0 where there is none: a step's parts add up within one quorum."""

    def begin(self, step: int, batch_of: Callable[[int], int]) -> Slice:
        """This worker's part of the step's global batch, or of another step's if the group is at that one.

        A worker that is behind gets an empty part of the others' step, and their state when it is committed.
        """

    def expect(self, step: int, batch: int) -> Slice:
        """The part that `begin` will return if nothing changes, for fetching ahead."""

    def exchange_in(self, *, this_pass: bool) -> None:
        """Whether the forward and backward pass that follow end with an exchange, or only add to the gradients."""

    def announce(self, weight: float, loss_sum: float, scale: float, *, is_last: bool, left_out: int = 0) -> Slice:
        """The step's last backward pass follows: what its gradients weigh, its losses weighed so, its loss scale.

        `is_last`: this worker leaves after the step. Returns the part that counts: if the group has moved on since
        `begin`, an empty one of the step that it is at.
        """

    def total(self) -> Total:
        """The sums over all workers, once this step's gradients are summed."""

    def begin_change(self) -> None:
        """The state changes from here on, before the commit: no peer may read it until the next step."""

    def commit(self) -> bool:
        """Whether this worker has the sums of all workers, so that the step counts.

        Where a link breaks at the end of an exchange some workers have them and others not: those take the state of
        the first in the next attempt, and the step counts once.
        """

    def between_steps(self, state: dict[str, Any]) -> dict[str, Any]:
        """A state that was captured while a step is open, as it was before that step."""

    def evaluation_range(self, num_samples: int) -> range:
        """This worker's part of an evaluation."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum of all workers' values; raises Lost."""

    def finish(self) -> None:
        """The last step is done: help those who are still behind."""

    def close(self) -> None:
        """Leave the others."""


class RunGroup(Group, Protocol):
    """The group that a run is given: it also takes the run's model."""

    def wrap(
        self,
        model: nn.Module,
        capture: Callable[[], dict[str, Any]],
        restore: Callable[[dict[str, Any]], None],
        is_stopping: Callable[[], bool],
        *,
        is_several: bool = False,
    ) -> nn.Module:
        """The module whose backward exchanges gradients; how this worker's state is read and replaced.

        `is_several`: the module holds several models, or several optimizers train it, with any number of backward
        passes a step; then `total` exchanges the gradients of one of them.
        """


class GroupState(Group, Protocol):
    """A group that may hand over to another one, between two steps: see `switching.SwitchingGroup`."""

    def catch_up(self, step: int) -> int:
        """Before `begin`: wait and take over the others' state, where this state needs that; returns the step then."""

    def successor(self) -> "GroupState":
        """The group for what comes next, asked before a step begins and after its verdict: mostly this one itself."""
