"""Makes the plan that is best now, from the costs of all workers and the plan in force."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from potluck.planning.cluster import Cluster, Worker
from potluck.planning.measured_exchange import RingMeasurement, as_seen
from potluck.planning.plan import LEAST_GAIN, Plan, make_plan, plan_for_shares, should_change
from potluck.planning.replanning.cost_report import CostReport
from potluck.planning.replanning.setting import GroupSetting
from potluck.planning.water_filling import Numbers


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan for the steps that follow, and why it differs from the plan before; an empty reason if it does not."""

    plan: Plan
    cluster: Cluster
    """What the plan was made from: costs, and the exchange as it was measured."""
    reason: str = ""
    gain: float = 0.0
    """The part of a step that the plan should save."""
    ring: RingMeasurement | None = None
    """The exchange as measured with the plan before, or in an earlier run."""


def propose(
    setting: GroupSetting, costs: Sequence[CostReport], current: Plan | None, least_gain: float = LEAST_GAIN
) -> Proposal | None:
    """The best plan for these costs, or the current plan with a new prediction; None while some cost is unknown."""
    profiles = [report.profile for report in costs]
    workers = tuple(
        Worker(name=name, machine=machine, compute=profile, stretch=report.stretch or None, coding_factor=factor)
        for (name, machine), profile, report, factor in zip(
            setting.workers, profiles, costs, setting.coding_factors, strict=True
        )
        if profile is not None
    )
    if len(workers) < len(setting.workers):
        return None
    cluster = Cluster(workers=workers, links=setting.links, exchange=setting.exchange, pairs=setting.pairs)
    if current is None:
        return Proposal(_first_plan(setting, cluster, least_gain), cluster, "the workers changed")
    ring = _measure_ring(cluster, costs, current)
    cluster = as_seen(cluster, cluster.is_active(np.array(current.shares)), ring)
    now = plan_for_shares(cluster, current.shares, current.policy)
    if setting.policy != "dynamic":
        return Proposal(now, cluster, ring=ring)
    best = make_plan(cluster, setting.batch, setting.policy, setting.keep)
    if not should_change(now, best, _least_gain(current, least_gain)):
        return Proposal(now, cluster, ring=ring)
    gain = 1 - best.prediction.step_s / now.prediction.step_s
    return Proposal(best, cluster, f"a step should be {100 * gain:.0f} % shorter", gain, ring)


def with_guesses(costs: Sequence[CostReport], batch: int) -> list[CostReport]:
    """The costs, with the average of the others for a worker that does not know its cost before its first step."""
    share = max(1, batch // len(costs))
    per_sample_s = [report.profile.seconds(share) / share for report in costs if report.profile is not None]
    if not per_sample_s:
        return list(costs)
    guess = CostReport(0.0, statistics.fmean(per_sample_s), memory_cap=0.0, error=1.0, exchange_wait_s=0.0)
    return [guess if report.profile is None else report for report in costs]


def _first_plan(setting: GroupSetting, cluster: Cluster, least_gain: float) -> Plan:
    plan = make_plan(cluster, setting.batch, setting.policy, setting.keep)
    even = make_plan(cluster, setting.batch, "static")
    if plan.policy == "dynamic" and not should_change(even, plan, least_gain):
        return replace(even, policy=plan.policy)  # the machines are alike: the difference is noise
    return plan


def _least_gain(current: Plan, least_gain: float) -> float:
    """At least LEAST_GAIN while shares are equal: the machines seemed alike, so small differences are noise."""
    is_even = max(current.shares) - min(current.shares) <= 1
    return max(least_gain, LEAST_GAIN) if is_even else least_gain


def _measure_ring(cluster: Cluster, costs: Sequence[CostReport], current: Plan) -> RingMeasurement:
    waits = [report.exchange_wait_s for report, share in zip(costs, current.shares, strict=True) if share > 0]
    machines = [worker.machine for worker, share in zip(cluster.workers, current.shares, strict=True) if share > 0]
    work_s = cluster.table.seconds(np.array(current.shares))
    exposed_s = _exposed_s(work_s[np.array(current.shares) > 0], np.array(waits), cluster.lateness_s(work_s))
    return RingMeasurement(
        machines=tuple(sorted(machines)),
        work_s=float(work_s.max()),
        exposed_s=exposed_s,
        code=cluster.exchange.code.name,
    )


def _exposed_s(work_s: Numbers, waits_s: Numbers, lateness_s: float) -> float:
    """The exchange that is left when the last worker is done: mean(work + wait) - the expected time of the latest.

    A step's prediction adds it to that same expected time, so that a plan in force is predicted as it was measured. All
    waits contain the exchange, and the shortest one no more than the exchange and the lateness: while a machine changes
    its speed, and its fit lags behind, these are the bounds.
    """
    shortest_s = float(waits_s.min())
    left_s = float((work_s + waits_s).mean()) - float(work_s.max()) - lateness_s
    return max(0.0, min(max(left_s, shortest_s - lateness_s), shortest_s))
