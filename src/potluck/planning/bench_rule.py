"""The rule that benches machines and brings them back: a change must shorten the rest of the run, its cost included.

saved = steps left * (seconds of a step now - seconds of a step then) must be more than the change itself costs, and a
step must become shorter by more than noise. There is no least number of seconds a step: 1 ms saved in each of 100,000
steps is worth as much as 1 s in each of 100. Runs and `potluck plan` use this same rule.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from potluck.planning.cluster import Cluster
from potluck.planning.plan import LEAST_GAIN, Plan, make_plan, plan_for_shares, plan_with_all

RE_FORMING_S = 1.5  # until a run has measured it: 1 s until the lighthouse misses a heartbeat, then workers reconnect
GOING_ALONE_S = 0.2  # a machine that goes on alone builds no ring: it only asks the lighthouse once more
CLEAR_GAIN = 0.3
# In a ring a machine works more slowly than alone: its processor also sends, receives and encrypts.
_HOPE = 0.9
_FEW_MACHINES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTerms:
    """What a change of the machines that train must save to pay."""

    steps_left: float = math.inf
    re_forming_s: float = RE_FORMING_S
    """Seconds that a change of the group costs."""
    least_gain: float = LEAST_GAIN
    """The part of a step's time that the change must save."""


def pays(now_s: float, then_s: float, terms: BenchTerms) -> bool:
    """Whether steps of then_s shorten the rest of the run by more than the change costs, each step by least_gain."""
    saved_s = now_s - then_s
    return saved_s > terms.least_gain * now_s and terms.steps_left * saved_s > terms.re_forming_s


def benching_pays(cluster: Cluster, plan: Plan, now_s: float, terms: BenchTerms) -> bool:
    """Whether the rest of the run is shorter without the machines that the plan benches; a step takes now_s now."""
    if len(cluster.machines) - len(plan.benched) == 1:
        terms = replace(terms, re_forming_s=GOING_ALONE_S)
    return pays(now_s, plan.prediction.step_s, terms)


def steps_left_of(last_step: int | None, step: int) -> float:
    """Steps still to do after `step`; infinite if the last step is unknown."""
    return math.inf if last_step is None else max(0, last_step - step)


def least_gain_after(num_returns: int) -> float:
    """The part of a step that benching must save: it doubles with each return, so that no machine goes to and fro."""
    return min(0.9, LEAST_GAIN * 2.0**num_returns)


def plan_run(
    cluster: Cluster,
    batch: int,
    policy: str = "dynamic",
    keep: Collection[str] = (),
    num_steps: int | None = None,
) -> Plan:
    """The plan for a run of `num_steps` steps: it benches machines only where that pays."""
    terms = BenchTerms(steps_left=steps_left_of(num_steps, 0))
    return with_bench_threshold(cluster, make_plan(cluster, batch, policy, keep), terms)


def with_bench_threshold(cluster: Cluster, shortest: Plan, terms: BenchTerms) -> Plan:
    """The plan with the shortest step, or the plan with every machine if there is one and benching does not pay."""
    whole = plan_with_all(cluster, shortest.prediction.samples, shortest.policy) if shortest.benched else None
    if whole is None or benching_pays(cluster, shortest, whole.prediction.step_s, terms):
        return shortest
    return whole


def alone(cluster: Cluster, batch: int) -> Plan:
    """The plan in which one machine does everything: the one that is fastest alone, without the pauses of a ring."""
    best_s, shares = math.inf, {}
    for machine in _fastest_few(cluster, batch):
        own = cluster.of({machine})
        plan = make_plan(own, batch)
        step_s = plan.prediction.parts_s * max(worker.alone_factor for worker in own.workers)
        if step_s < best_s:
            best_s, shares = step_s, plan.share_of
    plan = plan_for_shares(cluster, [shares.get(worker.name, 0) for worker in cluster.workers], "dynamic")
    work_s = [
        own_s * worker.alone_factor for own_s, worker in zip(plan.prediction.work_s, cluster.workers, strict=True)
    ]
    return replace(plan, prediction=replace(plan.prediction, work_s=tuple(work_s)))


def _fastest_few(cluster: Cluster, batch: int) -> list[str]:
    """The machines of which one is fastest alone: all where they are few, else the fastest by their single workers."""
    if len(cluster.machines) <= _FEW_MACHINES:
        return list(cluster.machines)
    factors = np.array([worker.alone_factor for worker in cluster.workers])
    speeds = 1 / (cluster.table.seconds(np.full(len(cluster.workers), batch)) * factors)
    by_machine = np.bincount(cluster.machine_of, weights=speeds)
    return [cluster.machines[place] for place in np.argsort(-by_machine, kind="stable")[:_FEW_MACHINES].tolist()]


def is_worth_a_try(now_s: float, alone_s: float, terms: BenchTerms) -> bool:
    """Whether to try how fast the fastest machine is alone; the cost includes the way back, in case it is slower."""
    there_and_back_s = GOING_ALONE_S + 2 * terms.re_forming_s
    return pays(now_s, _HOPE * alone_s, replace(terms, re_forming_s=there_and_back_s))
