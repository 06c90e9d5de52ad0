"""Step timings of all workers, joined by step and summed up: exact, in memory that does not grow with the run.

A step is whole when the samples of its workers add up to the global batch, and every worker has written its timing.
Steps are kept in blocks until every step of a block is whole; then the block becomes sums. A block that stays
incomplete, because a worker's file is missing, is summed up without its incomplete steps when the run is far past it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from potluck.events.types import PlanChanged, StepCommitted, StepTiming

Floats = npt.NDArray[np.float64]

BLOCK_STEPS: Final = 512
MOST_PENDING: Final = 16
PARTS: Final = ("data_wait", "compute", "exchange_wait", "commit", "rest", "retry")
_COLUMNS: Final = ("samples", "own_samples", "seconds", *PARTS)
_SAMPLES, _OWN, _SECONDS, _FIRST_PART = range(4)
_DATA_WAIT, _COMPUTE, _EXCHANGE_WAIT, _COMMIT, _REST, _RETRY = range(_FIRST_PART, len(_COLUMNS))
_UNTIMED = StepTiming(compute_s=float("nan"))
WAITED_FOR: Final = {
    "data_wait": _DATA_WAIT,
    "compute": _COMPUTE,
    "commit": _COMMIT,
    "rest": _REST,
    "retry": _RETRY,
}
"""The parts of a worker's own time between two all-reduces, for which other workers may wait; with their columns."""


def step_columns(steps: Sequence[StepCommitted]) -> Floats:
    """One row for each quantity, one column for each step; the compute time of a step without timing is NaN."""
    timings = [_UNTIMED if step.timing is None or step.traced else step.timing for step in steps]
    return np.array(
        [
            [step.samples for step in steps],
            [step.own_samples for step in steps],
            [step.seconds for step in steps],
            [timing.data_wait_s for timing in timings],
            [timing.compute_s for timing in timings],
            [timing.exchange_wait_s for timing in timings],
            [timing.commit_s for timing in timings],
            [timing.rest_s for timing in timings],
            [timing.retry_s for timing in timings],
        ],
        dtype=np.float64,
    )


class Sums:
    """Sums over whole steps."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.wall_s = self.accounted_s = self.samples = self.predicted_s = self.doubt_s = 0.0
        self.is_predicted = True
        self.slowest_link = ""
        self.num_worker_steps: dict[str, int] = defaultdict(int)
        self.done: dict[str, float] = defaultdict(float)
        """Samples trained, by worker."""
        self.spent_s: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        """Seconds by worker and cause; the causes add up to the worker's time."""
        self.waits = Waits()
        self._solo: dict[str, dict[float, int]] = defaultdict(lambda: defaultdict(int))

    def add(self, names: Sequence[str], steps: Floats, plan: PlanChanged | None) -> None:
        """Add whole steps under one plan; `steps` is workers x quantities x steps, 0 where a worker took no part."""
        own = steps[:, _OWN]
        is_in = own > 0
        num_workers = is_in.sum(axis=0)
        steps_s = steps[:, _FIRST_PART:].sum(axis=1)
        # All workers finish an all-reduce together: the worker with the shortest wait waited for the network only.
        exchange_s = np.where(is_in, steps[:, _EXCHANGE_WAIT], np.inf)
        wire_s = exchange_s.min(axis=0)
        wait_s = np.where(is_in, steps[:, _EXCHANGE_WAIT] - wire_s, 0.0)
        self.waits.add(names, steps, slowest=exchange_s.argmin(axis=0), wait_s=wait_s)
        count = steps.shape[2]
        self.num_steps += count
        self.wall_s += float((steps[:, _SECONDS].sum(axis=0) / num_workers).sum())
        self.accounted_s += float((steps_s.sum(axis=0) / num_workers).sum())
        self.samples += float(steps[:, _SAMPLES].max(axis=0).sum())
        if plan is None:
            self.is_predicted = False
        else:
            self.predicted_s += count * plan.step_s
            self.doubt_s += count * plan.step_s * plan.error
            self.slowest_link = plan.slowest_link or self.slowest_link
        causes = {
            "straggler_wait": wait_s.sum(axis=1),
            "exposed_exchange": np.where(is_in, wire_s, 0.0).sum(axis=1),
            **{name: steps[:, column].sum(axis=1) for name, column in WAITED_FOR.items()},
        }
        for index, name in enumerate(names):
            if not (num_in := int(is_in[index].sum())):
                continue
            self.num_worker_steps[name] += num_in
            self.done[name] += float(own[index].sum())
            self._solo[name][0.0 if plan is None else plan.solo_samples_per_s.get(name, 0.0)] += num_in
            for cause, seconds in causes.items():
                self.spent_s[name][cause] += float(seconds[index])

    def solo_speed(self, worker: str) -> float:
        """A worker's solo speed in samples/s: the median of the plans' estimates, one for each step; 0 if unknown.

        The result is at least the worker's speed while it computed in this run: an estimate may include the worker's
        own waits for data, which then would not count as lost.
        """
        speeds, counts = zip(*sorted(self._solo[worker].items()), strict=True)
        told: float = speeds[int(np.searchsorted(np.cumsum(counts), self.num_worker_steps[worker] / 2))]
        computed_s = self.spent_s[worker]["compute"]
        return max(told, self.done[worker] / computed_s) if told and computed_s else told


class Waits:
    """How long each worker waited for each slower worker, by the part of the step in which that one took longer."""

    def __init__(self) -> None:
        self.column: dict[str, int] = {}
        """By waiting worker: its column in `seconds`."""
        self.seconds: dict[str, Floats] = {}
        """By the worker that others waited for: an array of WAITED_FOR x waiting workers."""

    def add(self, names: Sequence[str], steps: Floats, *, slowest: npt.NDArray[np.int64], wait_s: Floats) -> None:
        """Add steps; `slowest` has the index of each step's slowest worker, `wait_s` each worker's wait for it."""
        present = np.flatnonzero(steps[:, _OWN].any(axis=1)).tolist()
        columns = [self.column.setdefault(names[index], len(self.column)) for index in present]
        for culprit in np.unique(slowest).tolist():
            mine = slowest == culprit
            found = np.zeros((len(WAITED_FOR), len(self.column)))
            found[:, columns] = _reasons(steps[:, :, mine], culprit, wait_s[:, mine])[:, present]
            before = self.seconds.get(names[culprit])
            if before is not None:
                found[:, : before.shape[1]] += before
            self.seconds[names[culprit]] = found


def _reasons(steps: Floats, culprit: int, wait_s: Floats) -> Floats:
    """WAITED_FOR x workers: each worker's wait, divided among the parts in which the culprit took longer than it."""
    longer = np.stack([np.maximum(0.0, steps[culprit, part] - steps[:, part]) for part in WAITED_FOR.values()])
    total = longer.sum(axis=0)
    longer[list(WAITED_FOR).index("compute")] += total == 0  # the culprit was late from the step before
    return np.asarray((wait_s * longer / np.where(total > 0, total, 1.0)).sum(axis=2))


class Ledger:
    """Collects steps worker by worker, and sums up those that are whole."""

    def __init__(self, *, first_step: int = 1, most_pending: int | None = MOST_PENDING) -> None:
        self.plans: dict[int, PlanChanged] = {}
        """By the first step that each plan is for."""
        self._first_step = first_step
        self._most_pending = most_pending
        self._pending: dict[int, dict[str, Floats]] = {}
        self._folded_before = 0
        self._sums = Sums()

    @property
    def num_plan_changes(self) -> int:
        """How many plans after the first changed the split."""
        in_order = [plan for _, plan in sorted(self.plans.items())]
        return sum(later.replaces(before.shares) for before, later in pairwise(in_order))

    def add(self, worker: str, numbers: npt.NDArray[np.int64], columns: Floats) -> None:
        """Add steps of one worker by number; a repeated step replaces the earlier one until its block is summed up."""
        blocks = numbers // BLOCK_STEPS
        for block in np.unique(blocks).tolist():
            if block < self._folded_before and block not in self._pending:
                continue
            mine = blocks == block
            rows = self._pending.setdefault(block, {})
            if worker not in rows:
                rows[worker] = np.zeros((len(_COLUMNS), BLOCK_STEPS))
            rows[worker][:, numbers[mine] - block * BLOCK_STEPS] = columns[:, mine]

    def fold(self) -> None:
        """Turn blocks that are whole, or far behind the newest block, into sums."""
        if self._most_pending is None or not self._pending:
            return
        newest = max(self._pending)
        for block in sorted(self._pending):
            whole = self._whole(block)
            begins = max(self._first_step - block * BLOCK_STEPS, 1 if block == 0 else 0)
            if whole[begins:].all() or block < newest - self._most_pending:
                self._sum_up(block, self._sums)
                del self._pending[block]
                self._folded_before = max(self._folded_before, block + 1)

    def sums(self) -> Sums:
        """The sums of all whole steps so far."""
        sums = deepcopy(self._sums)
        for block in sorted(self._pending):
            self._sum_up(block, sums)
        return sums

    def _whole(self, block: int) -> npt.NDArray[np.bool_]:
        rows = np.stack(list(self._pending[block].values()))
        own = rows[:, _OWN]
        parts = own.sum(axis=0)
        samples = np.where(own > 0, rows[:, _SAMPLES], 0.0).max(axis=0)
        is_timed = ~np.isnan(np.where(own > 0, rows[:, _COMPUTE], 0.0)).any(axis=0)
        is_wanted = np.arange(BLOCK_STEPS) + block * BLOCK_STEPS >= self._first_step
        return np.asarray((parts > 0) & (parts == samples) & is_timed & is_wanted)

    def _sum_up(self, block: int, sums: Sums) -> None:
        whole = self._whole(block)
        names = list(self._pending[block])
        rows = np.stack([self._pending[block][name] for name in names])
        rows = np.where(rows[:, _OWN : _OWN + 1] > 0, rows, 0.0)  # a worker without samples does not count
        for begin, end, plan in _segments(self.plans, block * BLOCK_STEPS, (block + 1) * BLOCK_STEPS):
            part = slice(begin - block * BLOCK_STEPS, end - block * BLOCK_STEPS)
            steps = rows[:, :, part][:, :, whole[part]]
            # Steps before the first plan have no prediction to compare with; they count only in a run without plans.
            if steps.shape[2] and (plan is not None or not self.plans):
                sums.add(names, steps, plan)


def _segments(plans: Mapping[int, PlanChanged], begin: int, end: int) -> list[tuple[int, int, PlanChanged | None]]:
    """Split the steps from `begin` to `end` by the plan in force: (begin, end, plan), None before the first plan."""
    before = [first for first in plans if first <= begin]
    starts = [begin, *sorted(first for first in plans if begin < first < end), end]
    in_force = [plans[max(before)] if before else None, *(plans[first] for first in starts[1:-1])]
    return list(zip(starts[:-1], starts[1:], in_force, strict=True))
