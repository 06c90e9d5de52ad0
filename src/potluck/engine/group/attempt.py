"""One attempt at a step: this worker's samples, and what it knows of the group so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from potluck.engine.order.position import Slice
from potluck.planning.replanning.cost_report import CostReport

_QUORUM_EVERY_S = 0.5  # how long a newcomer may wait for the next quorum


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAttempt:
    """One attempt at a step, from `begin` to the commit vote. A spoiled step has several attempts."""

    part: Slice
    """The samples that this worker takes."""
    batch: int
    """The samples of the step over all workers."""
    num_steps: int = 1
    """How many steps it is; in a round, all of the round."""
    began_at: float
    """time.monotonic of the beginning, plus waits that say nothing about the peers' speed."""
    is_confirmed: bool
    """False until the quorum is known; until then `part` is that of the quorum before."""
    has_quorum: bool = True
    """False if the step goes on in the group of the quorum before, without asking for one."""
    left_out: int = 0
    """Batches that this worker's script has skipped so far."""
    told: Sequence[CostReport] = ()
    """Each worker's cost report, once the gradients are summed."""
    someone_leaves: bool = False
    """Whether a worker has announced that this step is its last."""
    since_quorum_s: float = 0.0
    """Seconds since workers last asked for a quorum, the same number on all workers, once the gradients are summed."""
    someone_pauses: bool = False
    """Whether a worker has announced that it may be late for the next step."""


class NextStep(Enum):
    """How the next step begins, by the outcome of the last attempt."""

    WAITS = auto()
    """The group may have changed: wait for the quorum before taking samples."""
    WAITS_AFTER_SPOILED = auto()
    """As WAITS; timeouts then depend on which workers are missing."""
    PRESUMES = auto()
    """No sign of a change: take samples at once, and ask for the quorum while computing."""
    GOES_ON = auto()
    """All workers had a quorum a moment ago: take samples, and ask for none. Who is lost fails the exchange."""


def next_step(attempt: StepAttempt, *, is_settled: bool) -> NextStep:
    """How the step after a committed one begins: by numbers that all workers have, since all ask in the same steps.

    Without a quorum, a worker that is late by more than the step's timeout fails the step; a quorum waits for it.
    `is_settled`: the group has committed a step before this one, so that nobody was healed in this one.
    """
    if attempt.someone_leaves:
        return NextStep.WAITS
    is_recent = 0 < attempt.since_quorum_s < _QUORUM_EVERY_S
    return NextStep.GOES_ON if is_recent and is_settled and not attempt.someone_pauses else NextStep.PRESUMES
