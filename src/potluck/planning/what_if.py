"""Plans for questions before a run: what each machine adds, what faster links add, what a benched machine costs."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from potluck.planning.bench_rule import plan_run
from potluck.planning.cluster import Cluster
from potluck.planning.costs import LinkProfile
from potluck.planning.plan import Plan, make_plan


@dataclass(frozen=True, slots=True)
class Added:
    """The plan with this machine and all machines before it in the list."""

    machine: str
    solo_samples_per_s: float
    plan: Plan


def add_one_by_one(
    cluster: Cluster, batch: int, policy: str = "dynamic", keep: Collection[str] = (), num_steps: int | None = None
) -> list[Added]:
    """Plans for the fastest machine, the fastest two, and so on."""
    speed = {machine: cluster.solo_speed(machine, batch) for machine in cluster.machines}
    order = sorted(cluster.machines, key=lambda machine: -speed[machine])
    rows = []
    for count, machine in enumerate(order, start=1):
        here = set(order[:count])
        plan = plan_run(cluster.of(here), batch, policy, here & set(keep), num_steps)
        rows.append(Added(machine, speed[machine], plan))
    return rows


def with_links_of(
    cluster: Cluster,
    batch: int,
    bandwidth_bytes_per_s: float,
    policy: str = "dynamic",
    keep: Collection[str] = (),
    *,
    num_steps: int | None = None,
) -> Plan:
    """The plan if no link were slower than this bandwidth."""
    links = {
        name: LinkProfile(
            latency_s=link.latency_s,
            bandwidth_bytes_per_s=max(link.bandwidth_bytes_per_s, bandwidth_bytes_per_s),
            error=link.error,
        )
        for name, link in cluster.links.items()
    }
    return plan_run(replace(cluster, links=links), batch, policy, keep, num_steps)


def if_kept(cluster: Cluster, plan: Plan, machine: str) -> Plan:
    """The best plan in which this benched machine takes part too."""
    return make_plan(cluster, plan.prediction.samples, plan.policy, [machine])
