"""Plans for questions before a run: what each machine adds, what faster links add, what a benched machine costs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from potluck.core.errors import PlanError
from potluck.planning.bench_rule import plan_run
from potluck.planning.cluster import Cluster
from potluck.planning.codes import CODES
from potluck.planning.costs import LinkProfile
from potluck.planning.plan import Plan, make_plan

_FEW_MACHINES = 16


@dataclass(frozen=True, slots=True)
class Added:
    """The plan with this machine and all machines before it in the list."""

    machine: str
    solo_samples_per_s: float
    sum_samples_per_s: float
    """The solo speeds of this machine and all before it."""
    plan: Plan


def add_one_by_one(
    cluster: Cluster, batch: int, policy: str = "dynamic", keep: Collection[str] = (), num_steps: int | None = None
) -> list[Added]:
    """Plans for the fastest machine, the fastest two, and so on; of many machines twice as many each time."""
    speed = cluster.solo_speeds(batch)
    order = sorted(cluster.machines, key=lambda machine: -speed[machine])
    rows = []
    for count in _counts(len(order)):
        machine, here = order[count - 1], set(order[:count])
        plan = plan_run(cluster.of(here), batch, policy, here & set(keep), num_steps)
        rows.append(Added(machine, speed[machine], sum(speed[name] for name in here), plan))
    return rows


def _counts(num_machines: int) -> list[int]:
    if num_machines <= _FEW_MACHINES:
        return list(range(1, num_machines + 1))
    return [*(1 << power for power in range(num_machines.bit_length()) if 1 << power < num_machines), num_machines]


def compare_with(
    before: Plan, after: Plan, added: Sequence[str], left_out: Sequence[str], exchange: str = "exact"
) -> str:
    """What a change of the machines brings, in one line. `exchange`: the mode that was asked for.

    Plans are of runs whose machines exchange gradients in every step; of other modes the line says so.
    """
    if before.prediction.samples != after.prediction.samples or before.policy != after.policy:
        raise PlanError("plans of other batches or policies cannot be compared", fix="plan both with the same options")
    names = [f"with {_some(added)}"] if added else []
    names += [f"without {_some(left_out)}"] if left_out else []
    then, now = after.prediction.samples_per_s, before.prediction.samples_per_s
    low, high = after.prediction.band
    helps = f"{100 * (then / now - 1):+.0f} %"
    line = f"{' and '.join(names)}: {then:,.1f} samples/s (between {low:,.1f} and {high:,.1f}), "
    line += f"against {now:,.1f} now: {helps}"
    if exchange not in CODES:
        line += f" (both with --exchange exact; what {exchange} would do with all of them is in the table)"
    benched = [name for name in after.benched if name in added]
    return f"{line}; {_some(benched)} would be benched, and does not help" if benched else line


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _FEW_MACHINES else f"{len(names)} machines more"


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
