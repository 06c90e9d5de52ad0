"""One try at a step: which samples this worker takes in it, and what is known of the group so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from potluck.engine.order.position import Slice
from potluck.planning.replanning.cost_report import CostReport


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAttempt:
    """From `begin` to the verdict. A spoiled step has several attempts."""

    part: Slice
    """This worker's samples."""
    batch: int
    """The samples of the step over all workers."""
    began_at: float
    """time.monotonic, moved on by waits that say nothing about the peers' speed."""
    is_confirmed: bool
    """False while the quorum is still asked for, and the part is that of the quorum before."""
    left_out: int = 0
    """Batches that this worker's script has left out so far."""
    told: Sequence[CostReport] = ()
    """What each worker told of its cost, once the gradients are summed."""
    someone_leaves: bool = False
    """Whether a worker has said that this step is its last."""


class NextStep(Enum):
    """What the last attempt's verdict means for the next step."""

    WAITS = auto()
    """The group may have changed: wait for the quorum before taking samples."""
    WAITS_AFTER_SPOILED = auto()
    """The same, and timeouts depend on who is missing then."""
    PRESUMES = auto()
    """Nothing hints at a change: take samples at once, and ask for the quorum while computing."""
