"""A plan: every worker's share of the global batch, and the time that a step should take."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from potluck.core.errors import PlanError
from potluck.planning.cluster import Cluster
from potluck.planning.policies import find_policy

LEAST_GAIN = 0.05
# Predictions of lab runs were off by more than their fits' own errors: what a person is told is at least so wide.
_LEAST_DOUBT, _LEAST_DOUBT_OF_UNMEASURED = 0.1, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted time of a step: the slowest worker's own work + lateness + exposed exchange + overhead.

    At least max(work * stretch), if a container's CPU quota lets a worker compute that much more slowly without pauses.
    """

    samples: int
    work_s: tuple[float, ...]
    """Every worker's own work, in the order of the workers."""
    exposed_exchange_s: float
    overhead_s: float
    error: float
    """Relative: the step is expected within step_s * (1 - error) and step_s * (1 + error)."""
    lateness_s: float = 0.0
    """How much later than its usual time the last worker finishes, on average: work varies from step to step."""
    is_measured: bool = True
    """Whether all workers with samples were measured."""
    least_s: float = 0.0
    """The shortest step that the workers' CPU quotas allow: without the pauses of a ring they compute more slowly."""

    @property
    def slowest_work_s(self) -> float:
        return max(self.work_s)

    @property
    def parts_s(self) -> float:
        """The sum of the parts of a step."""
        return self.slowest_work_s + self.lateness_s + self.exposed_exchange_s + self.overhead_s

    @property
    def step_s(self) -> float:
        return max(self.parts_s, self.least_s)

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.step_s

    @property
    def doubt(self) -> float:
        """The error to tell a person: at least a tenth, a fifth if a machine was not measured but taken from a table.

        A fit's own error says how well its numbers are known, not how much a run differs from what was measured.
        """
        least = _LEAST_DOUBT if self.is_measured else _LEAST_DOUBT_OF_UNMEASURED
        return min(0.99, max(self.error, least))

    @property
    def band(self) -> tuple[float, float]:
        """Samples/s at the two ends of the doubt."""
        return self.samples_per_s / (1 + self.doubt), self.samples_per_s / (1 - self.doubt)

    def straggler_wait_s(self, worker: int) -> float:
        """How long a worker waits for the slowest one."""
        return self.slowest_work_s - self.work_s[worker]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many samples of every global batch each worker takes."""

    policy: str
    workers: tuple[str, ...]
    shares: tuple[int, ...]
    benched: tuple[str, ...]
    """Machines that take no samples and are not in the ring."""
    prediction: Prediction

    @property
    def share_of(self) -> dict[str, int]:
        return dict(zip(self.workers, self.shares, strict=True))


def make_plan(cluster: Cluster, batch: int, policy: str = "dynamic", keep: Collection[str] = ()) -> Plan:
    """The plan that a policy makes for this cluster and global batch."""
    if batch < 1:
        raise PlanError(
            f"a global batch of {batch} cannot be split",
            fix="choose a global batch of at least 1 (--global-batch, or global_batch in a script)",
        )
    return plan_for_shares(cluster, find_policy(policy)(cluster, batch, keep), policy)


def plan_with_all(cluster: Cluster, batch: int, policy: str = "dynamic") -> Plan | None:
    """The plan in which every machine takes part; None if the batch has fewer samples than there are workers."""
    return make_plan(cluster, batch, policy, cluster.machines) if len(cluster.workers) <= batch else None


def plan_for_shares(cluster: Cluster, shares: Sequence[int], policy: str) -> Plan:
    """The plan with these shares, and the step that this cluster's costs predict for them."""
    active = cluster.is_active(np.array(shares))
    return Plan(
        policy=policy,
        workers=tuple(worker.name for worker in cluster.workers),
        shares=tuple(shares),
        benched=tuple(
            name for name, takes_part in zip(cluster.machines, active.tolist(), strict=True) if not takes_part
        ),
        prediction=predict(cluster, shares),
    )


def predict(cluster: Cluster, shares: Sequence[int]) -> Prediction:
    """The step that costs and links predict for these shares; a machine without samples is not in the ring."""
    active = cluster.is_active(np.array(shares))
    work_s = cluster.table.seconds(np.array(shares))
    slowest_s = float(work_s.max())
    lateness_s = cluster.lateness_s(work_s)
    exposed_s = cluster.exchange.exposed_s(cluster.wire_s(active), slowest_s)
    longest_s = float((work_s * [1 + worker.compute.error for worker in cluster.workers]).max())
    overhead_s = cluster.overhead_among_s(sum(share > 0 for share in shares))
    links = [cluster.links[name] for name in cluster.machines if name in cluster.links]
    doubt_s = longest_s - slowest_s + exposed_s * max((link.error for link in links), default=0.0)
    return Prediction(
        samples=sum(shares),
        work_s=tuple(work_s.tolist()),
        exposed_exchange_s=exposed_s,
        overhead_s=overhead_s,
        error=doubt_s / (slowest_s + lateness_s + exposed_s + overhead_s),
        lateness_s=lateness_s,
        least_s=float((work_s * cluster.least_factors).max()),
        is_measured=all(worker.is_measured for worker, share in zip(cluster.workers, shares, strict=True) if share),
    )


def should_change(current: Plan, proposed: Plan, least_gain: float = LEAST_GAIN) -> bool:
    """Whether to take the proposed plan: its workers differ, or its gain is above least_gain and above its own error.

    Both plans must be predicted from the same costs, the newest.
    """
    if current.workers != proposed.workers:
        return True
    if current.shares == proposed.shares:
        return False
    gain = current.prediction.step_s / proposed.prediction.step_s - 1
    return gain > max(least_gain, proposed.prediction.error)
