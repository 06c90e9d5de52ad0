"""Decides at every check which machines to bench, from numbers that all workers have, so that all decide the same."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from potluck.planning.bench_rule import (
    CLEAR_GAIN,
    BenchTerms,
    alone,
    benching_pays,
    is_worth_a_try,
    least_gain_after,
    steps_left_of,
    with_bench_threshold,
)
from potluck.planning.cluster import Cluster
from potluck.planning.measured_exchange import as_seen
from potluck.planning.plan import Plan, make_plan, plan_for_shares, plan_with_all
from potluck.planning.replanning.proposal import Proposal
from potluck.planning.replanning.setting import GroupSetting

_FIRST_VOTE = 5  # commits since the ring formed: earlier timings are of machines that warm up
_STREAK, _CLEAR_STREAK = 5, 2  # checks in a row that must find that benching pays


class BenchVote(NamedTuple):
    """The proposal to bench machines, once enough checks in a row wanted to, and how many checks have so far."""

    proposal: Proposal | None
    streak: int = 0


def vote(
    setting: GroupSetting, step: int, before: Plan | None, proposal: Proposal, *, num_commits: int, streak: int
) -> BenchVote:
    """Whether the rest of the run is shorter without some machines, by the bench rule.

    `before` is the plan in force, None for a ring that has just formed; `proposal` is what `propose` found this time.
    """
    if setting.policy != "dynamic":
        return BenchVote(None, streak)
    terms = BenchTerms(steps_left=steps_left_of(setting.last_step, step), re_forming_s=setting.re_forming_s)
    if before is None:
        return BenchVote(_from_earlier_run(setting, proposal.cluster, terms), streak)
    if num_commits < _FIRST_VOTE:
        return BenchVote(None, streak)
    now_s = plan_for_shares(proposal.cluster, before.shares, before.policy).prediction.step_s
    plan, is_wanted = _best_without_some(setting, proposal, now_s, terms)
    gain = 1 - plan.prediction.step_s / now_s
    streak = streak + 1 if is_wanted else 0
    if streak < (_CLEAR_STREAK if gain > CLEAR_GAIN else _STREAK):
        return BenchVote(None, streak)
    reason = f"a step should be {100 * gain:.0f} % shorter" if gain > 0 else _TRY
    return BenchVote(Proposal(plan, proposal.cluster, reason, gain, proposal.ring), streak)


_TRY = "to see whether one machine alone is faster"


def _best_without_some(setting: GroupSetting, proposal: Proposal, now_s: float, terms: BenchTerms) -> tuple[Plan, bool]:
    """The best plan that benches machines, and whether to take it; `now_s`: a step by the plan in force.

    Where other shares of all machines would be faster than now, benching must be better than these.
    """
    plan, num_machines = proposal.plan, len(setting.machines)
    if plan.benched:
        with_all = plan_with_all(proposal.cluster, setting.batch)
        if with_all is not None:
            now_s = min(now_s, with_all.prediction.step_s)
        if num_machines - len(plan.benched) == 1 and not setting.keep:
            plan = alone(proposal.cluster, setting.batch)
        terms = replace(terms, least_gain=least_gain_after(setting.num_returns))
        return plan, benching_pays(proposal.cluster, plan, now_s, terms)
    now_s = min(now_s, plan.prediction.step_s)
    plan = alone(proposal.cluster, setting.batch)
    may_try = setting.num_returns == 0 and not setting.keep and len(plan.benched) > 0
    return plan, may_try and is_worth_a_try(now_s, plan.prediction.step_s, terms)


def _from_earlier_run(setting: GroupSetting, cluster: Cluster, terms: BenchTerms) -> Proposal | None:
    """A proposal without the machines that clearly slowed down an earlier run of this model, if there are any."""
    if setting.kept_ring is None or setting.num_returns:
        return None
    cluster = as_seen(cluster, np.ones(len(cluster.machines), dtype=bool), setting.kept_ring)
    shortest = make_plan(cluster, setting.batch, "dynamic", setting.keep)
    plan = with_bench_threshold(cluster, shortest, replace(terms, least_gain=CLEAR_GAIN))
    is_single = len(cluster.machines) - len(plan.benched) == 1
    if is_single and any(worker.stretch is None for worker in cluster.workers):
        return None  # whether a machine with a CPU quota keeps its speed without pauses shows after a few steps
    return Proposal(plan, cluster, "an earlier run was faster so", ring=setting.kept_ring) if plan.benched else None
