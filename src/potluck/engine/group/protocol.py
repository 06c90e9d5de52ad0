"""The Group protocol: what one worker's training loop needs from the workers that train together."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from potluck.engine.compute.outer_step import OuterStep
from potluck.engine.group.place import States
from potluck.engine.group.round_view import RoundView
from potluck.engine.order.position import BatchSizes, Slice


class Lost(Exception):  # noqa: N818  not an error of the user's
    """A peer was lost while an evaluation's numbers were summed."""


class Total(NamedTuple):
    """Sums over all workers of a step."""

    weight: float
    loss_sum: float
    scale: float
    """The fp16 loss scale, which is the same on all workers that had samples."""
    left_out: float = 0.0
    """Batches that the workers' scripts have skipped, on average."""


class Announcement(NamedTuple):
    """One worker's numbers of a step, as far as it knows them before its last backward pass."""

    weight: float
    """How many samples (or tokens) its gradients are over."""
    loss_sum: float
    """The sum of its losses, each times its weight."""
    scale: float
    """Its fp16 loss scale."""
    is_last: bool = False
    """Whether it leaves after the step."""
    left_out: int = 0
    """Batches that its script has skipped so far."""
    pauses: bool = False
    """Whether it may take a while before it begins the next step."""


class Committed(NamedTuple):
    """What a commit vote has completed: a step, a whole round, or, inside a round, nothing yet."""

    num_steps: int = 1
    total: Total | None = None
    """The sums over all workers of a round; None after a step."""
    samples: int = 0
    """The samples of a round."""


class Group(Protocol):
    """What a step needs from the other workers: a share of the samples, summed gradients, the commit vote."""

    @property
    def writes(self) -> bool:
        """Whether this worker is the one that writes checkpoints and prints for the script."""

    @property
    def waits(self) -> bool:
        """Whether a step may have to wait for other workers."""

    @property
    def is_benched(self) -> bool:
        """Whether this worker is on the bench: the workers that train print and record for the run."""

    @property
    def committed(self) -> Committed:
        """What the last successful commit vote has completed."""

    @property
    def round(self) -> RoundView:
        """The open round, in a run that trains in rounds."""

    @property
    def quorum_id(self) -> int:
        """The current quorum's number, 0 without a quorum: the workers' shares of a step add up within one quorum."""

    def begin(self, step: int, order: BatchSizes) -> Slice:
        """This worker's share of the step's global batch, or of the step that the group is at.

        A worker that is behind gets an empty share of the group's step, and the group's state when that step commits.
        """

    def expect(self, step: int, batch: int) -> Slice:
        """The share that `begin` will return if neither group nor plan changes, for reading ahead."""

    def exchange_in(self, *, this_pass: bool) -> None:
        """Set whether the next forward and backward pass ends with an all-reduce, or only adds to local gradients."""

    def announce(self, own: Announcement) -> Slice:
        """Call before the step's last backward pass, with the numbers that are sent to all workers.

        Returns the share that counts: if the group has moved on since `begin`, an empty share of the step that the
        group is at.
        """

    def total(self) -> Total:
        """Wait until the gradients are summed; return the sums over all workers."""

    def begin_change(self) -> None:
        """Call before the state changes ahead of the commit vote: no peer may read the state until the next step."""

    def commit(self) -> bool:
        """The commit vote: whether this worker has the sums of all workers, so that the step counts.

        If a link breaks at the end of an all-reduce, some workers have the sums and others do not. The others take the
        state of the first in the next attempt, so the step counts once.
        """

    def between_steps(self, state: dict[str, Any]) -> dict[str, Any]:
        """Turn a state that was captured inside an open step into the state before that step."""

    def evaluation_range(self, num_samples: int) -> range:
        """The samples that this worker evaluates, of `num_samples` in all."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum of all workers' values; raises Lost if a peer is lost."""

    def finish(self) -> None:
        """Call after the last step: send the final state to workers that wait for it."""

    def close(self) -> None:
        """Leave the group."""


class RunGroup(Group, Protocol):
    """The Group of a run, which also takes the run's model."""

    def wrap(
        self,
        model: nn.Module,
        states: States,
        is_stopping: Callable[[], bool],
        *,
        is_several: bool = False,
        outer: OuterStep | None = None,
    ) -> nn.Module:
        """The module whose backward pass exchanges gradients.

        `states` reads and replaces this worker's training state. `is_stopping`: whether a stop was requested.
        `is_several`: the module holds several models, or several optimizers train it, with any number of backward
        passes per step; then each `total` exchanges the gradients of one pass. `outer`: the outer step of a run that
        trains in rounds.
        """


class GroupState(Group, Protocol):
    """One state of a `switching.SwitchingGroup`: a Group that may hand over to another one between two steps."""

    def catch_up(self, step: int) -> int:
        """Called before `begin`; a benched worker waits here, then copies the others' state. Returns the new step."""

    def successor(self) -> "GroupState":
        """The next GroupState, mostly this one itself; asked before a step begins and after its commit vote."""
