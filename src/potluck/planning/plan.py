"""A plan: every worker's share of the global batch, and the time that a step should take."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from potluck.core.errors import PlanError
from potluck.planning.cluster import Cluster
from potluck.planning.policies import find_policy

LEAST_GAIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted time of a step: the slowest worker's own work + lateness + exposed exchange + overhead."""

    samples: int
    work_s: tuple[float, ...]
    """Every worker's own work, in the order of the workers."""
    exposed_exchange_s: float
    overhead_s: float
    error: float
    """Relative: the step is expected within step_s * (1 - error) and step_s * (1 + error)."""
    lateness_s: float = 0.0
    """How much later than its usual time the last worker finishes, on average: work varies from step to step."""

    @property
    def slowest_work_s(self) -> float:
        return max(self.work_s)

    @property
    def step_s(self) -> float:
        return self.slowest_work_s + self.lateness_s + self.exposed_exchange_s + self.overhead_s

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.step_s

    @property
    def band(self) -> tuple[float, float]:
        """Samples/s at the two ends of the error."""
        return self.samples_per_s / (1 + self.error), self.samples_per_s / max(1e-9, 1 - min(self.error, 0.99))

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
    links = [cluster.links[name] for name in cluster.machines if name in cluster.links]
    doubt_s = longest_s - slowest_s + exposed_s * max((link.error for link in links), default=0.0)
    return Prediction(
        samples=sum(shares),
        work_s=tuple(work_s.tolist()),
        exposed_exchange_s=exposed_s,
        overhead_s=cluster.overhead_s,
        error=doubt_s / (slowest_s + lateness_s + exposed_s + cluster.overhead_s),
        lateness_s=lateness_s,
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
