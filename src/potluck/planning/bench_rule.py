"""The rule by which machines are benched and come back: the rest of the run with and without them, change included.

saved = steps left * (seconds of a step now - seconds of a step then) must be more than the change itself costs. There
is no limit in seconds a step: 1 ms saved in each of 100,000 steps is worth as much as 1 s in each of 100. Runs and
`potluck plan` have this one rule.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from potluck.planning.cluster import Cluster
from potluck.planning.plan import LEAST_GAIN, Plan, make_plan, plan_for_shares

RE_FORMING_S = 1.5  # until a run has measured it: the lighthouse misses a heartbeat for 1 s, then the others connect
GOING_ALONE_S = 0.2  # a single machine that goes on needs no ring: it only asks the lighthouse once more
CLEAR_GAIN = 0.3
# Work beside a ring is slower than work alone: the same processor also sends, receives and encrypts.
_HOPE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTerms:
    """What a change of the machines that train must be worth."""

    steps_left: float = math.inf
    re_forming_s: float = RE_FORMING_S
    """Seconds that a change of the group costs."""
    least_gain: float = LEAST_GAIN
    """The part of a step that must be saved."""


def pays(now_s: float, then_s: float, terms: BenchTerms) -> bool:
    """Whether the rest of the run is shorter with steps of then_s, the change included, and by more than noise."""
    saved_s = now_s - then_s
    return saved_s > terms.least_gain * now_s and terms.steps_left * saved_s > terms.re_forming_s


def benching_pays(cluster: Cluster, plan: Plan, now_s: float, terms: BenchTerms) -> bool:
    """Whether the rest of the run is shorter without the machines that the plan benches; a step takes now_s now."""
    if len(cluster.machines) - len(plan.benched) == 1:
        terms = replace(terms, re_forming_s=GOING_ALONE_S)
    return pays(now_s, plan.prediction.step_s, terms)


def steps_left_of(last_step: int | None, step: int) -> float:
    """Steps still to do; endless where nobody knows the end."""
    return math.inf if last_step is None else max(0, last_step - step)


def least_gain_after(num_returns: int) -> float:
    """What leaving must save, as a part of a step: twice as much after each return, so that nobody goes to and fro."""
    return min(0.9, LEAST_GAIN * 2.0**num_returns)


def plan_run(
    cluster: Cluster,
    batch: int,
    policy: str = "dynamic",
    keep: Collection[str] = (),
    num_steps: int | None = None,
) -> Plan:
    """The plan that a run of so many steps comes to: machines are left out only where that pays."""
    terms = BenchTerms(steps_left=steps_left_of(num_steps, 0))
    return with_bench_threshold(cluster, make_plan(cluster, batch, policy, keep), terms)


def with_bench_threshold(cluster: Cluster, shortest: Plan, terms: BenchTerms) -> Plan:
    """The shortest plan, or the one with every machine if benching some does not pay."""
    if not shortest.benched:
        return shortest
    whole = make_plan(cluster, shortest.prediction.samples, shortest.policy, cluster.machines)
    return shortest if benching_pays(cluster, shortest, whole.prediction.step_s, terms) else whole


def alone(cluster: Cluster, batch: int) -> Plan:
    """The plan in which the machine that is fastest alone, and without pauses, does everything."""
    best_s, shares = math.inf, {}
    for machine in cluster.machines:
        own = cluster.of({machine})
        plan = make_plan(own, batch)
        step_s = plan.prediction.step_s * max(worker.alone_factor for worker in own.workers)
        if step_s < best_s:
            best_s, shares = step_s, plan.share_of
    plan = plan_for_shares(cluster, [shares.get(worker.name, 0) for worker in cluster.workers], "dynamic")
    work_s = [
        own_s * worker.alone_factor for own_s, worker in zip(plan.prediction.work_s, cluster.workers, strict=True)
    ]
    return replace(plan, prediction=replace(plan.prediction, work_s=tuple(work_s)))


def is_worth_a_try(now_s: float, alone_s: float, terms: BenchTerms) -> bool:
    """Whether the fastest machine should show what it does alone, the way back included if it is not worth it."""
    there_and_back_s = GOING_ALONE_S + 2 * terms.re_forming_s
    return pays(now_s, _HOPE * alone_s, replace(terms, re_forming_s=there_and_back_s))
