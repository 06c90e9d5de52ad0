"""The cost of this worker's own work, measured in its committed steps."""

import statistics
from collections import deque

from potluck.events.types import StepTiming
from potluck.machine.hardware import quota_cores
from potluck.measuring.compute_fit import ComputeFit
from potluck.measuring.line_fit import Timed
from potluck.planning.costs import ComputeProfile
from potluck.planning.replanning.cost_report import UNKNOWN_COST, CostReport, usual_wait_s

_NUM_RECENT = 8


class WorkerCost:
    """Timings of one worker's steps, and the cost that fits them."""

    def __init__(self, micro_batch: int | None) -> None:
        self.num_timed = 0
        self._micro_batch = micro_batch
        self._fit = ComputeFit(memory_cap=micro_batch)
        self._share = 0
        self._own_s: deque[float] = deque(maxlen=_NUM_RECENT)
        self._waits_s: deque[float] = deque(maxlen=_NUM_RECENT)
        self._busy: deque[float] = deque(maxlen=_NUM_RECENT)
        self._beside_s: deque[float] = deque(maxlen=_NUM_RECENT)
        self._steps_s: deque[float] = deque(maxlen=_NUM_RECENT)
        self._reported = UNKNOWN_COST

    def begin_with(self, prior: ComputeProfile) -> None:
        """Start from the cost of this model that earlier runs and trials measured."""
        self._fit = ComputeFit(prior, self._micro_batch)

    @property
    def memory_cap(self) -> int | None:
        """The largest micro-batch that is known to fit; None if no limit is known."""
        return self._fit.memory_cap

    @property
    def profile(self) -> ComputeProfile | None:
        """The cost that fits all timings so far, or the stored one before the first timing; None without either."""
        return self._fit.profile()

    @property
    def step_s(self) -> float | None:
        """Median seconds of the recent steps, waits included; None before the first step."""
        return statistics.median(self._steps_s) if self._steps_s else None

    @property
    def stretch(self) -> float:
        """How many times slower this worker computes without a ring's pauses, due to its CPU quota; 0 if unknown."""
        quota = quota_cores()
        if quota is None:
            return 1.0
        return max(1.0, statistics.median(self._busy) / quota) if self._busy else 0.0

    @property
    def overhead_s(self) -> float | None:
        """What a step usually takes beside its work: the commit vote, events, checkpoints; None before the first."""
        return statistics.median(self._beside_s) if self._beside_s else None

    def snapshot(self) -> "WorkerCost":
        """A copy of what `introduction` needs, which no code changes, so that another thread may read the copy."""
        copy = WorkerCost(self._micro_batch)
        copy._fit, copy._share, copy._busy = self._fit.snapshot(), self._share, self._busy.copy()
        return copy

    def introduction(self, usual_share: int) -> CostReport:
        """The cost report for a group that this worker joins; `usual_share` is used before it has had a share."""
        return CostReport.of(self.profile, self._share or usual_share, 0.0, self.stretch)

    def report(self, *, is_fresh: bool) -> CostReport:
        """The cost report sent with the gradients; `is_fresh`: fit anew, because the plan will be checked."""
        if is_fresh:
            wait_s = usual_wait_s(self._own_s, self._waits_s)
            self._reported = CostReport.of(self.profile, self._share, wait_s, self.stretch)
        return self._reported

    def forget_group(self, *, is_ring: bool) -> None:
        """Forget the waits of the previous group; if the new one has several workers (`is_ring`), also step times."""
        self._own_s.clear()
        self._waits_s.clear()
        if is_ring:
            self._steps_s.clear()

    def committed(self, samples: int, num_micro_batches: int, timing: StepTiming, cpu_s: float) -> None:
        """Record a committed step in which this worker had samples; `cpu_s` is the processor time of its own work."""
        if timing.own_s > 0:
            self._busy.append(cpu_s / timing.own_s)
        self._beside_s.append(timing.commit_s + timing.rest_s)
        self._share = samples
        self.num_timed += 1
        if self.num_timed > 1:  # the first step includes torch's own setup
            self._fit.add(Timed(samples, timing.own_s, num_micro_batches))
        # A worker alone needs no commit vote either, so its time counts as a wait for others.
        self._own_s.append(timing.own_s)
        self._waits_s.append(timing.exchange_wait_s + timing.commit_s)
        self._steps_s.append(timing.step_s - timing.retry_s)

    def probed(self, timed: Timed) -> None:
        """Record a probe step on the bench."""
        self._fit.add(timed)
