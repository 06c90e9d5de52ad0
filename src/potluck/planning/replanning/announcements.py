"""The events of a run that record a changed plan."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from potluck.events.types import AnyEvent, MachineBenched, Notice, PlanChanged
from potluck.planning.explain import explain_benched, seconds_text
from potluck.planning.plan import make_plan
from potluck.planning.replanning.cost_report import CostReport
from potluck.planning.replanning.proposal import Proposal
from potluck.planning.replanning.setting import GroupSetting
from potluck.planning.what_if import if_kept

_FEW_BENCHED = 8
MOST_PLAN_WRITERS = 20
"""Machines of a group whose workers write plans."""


def plan_writers(machines: Iterable[str]) -> frozenset[str]:
    """The machines of a group whose workers write plans: the first MOST_PLAN_WRITERS.

    A plan lists all workers. If all workers of a large group wrote it, a run's files would grow with the square of the
    machines.
    """
    return frozenset(islice(dict.fromkeys(machines), MOST_PLAN_WRITERS))


def is_written_by(machine: str, event: AnyEvent, writers: frozenset[str]) -> bool:
    """Whether this machine writes an event that every worker of the group knows; a benched machine writes its own."""
    if not isinstance(event, PlanChanged | MachineBenched):
        return True
    return machine in writers or (isinstance(event, MachineBenched) and event.machine == machine)


def plan_changed(setting: GroupSetting, costs: Sequence[CostReport], proposal: Proposal, step: int) -> PlanChanged:
    """The event for the plan that holds after this step; an empty reason means the same shares with newer numbers."""
    plan = proposal.plan
    solo = {
        name: report.profile.solo_speed(setting.batch) / max(1.0, report.stretch)
        for name, report in zip(setting.names, costs, strict=True)
        if report.profile is not None
    }
    return PlanChanged(
        step=step + 1,
        policy=plan.policy,
        shares=plan.share_of,
        reason=proposal.reason,
        step_s=plan.prediction.step_s,
        samples_per_s=plan.prediction.samples_per_s,
        error=plan.prediction.error,
        solo_samples_per_s=solo,
        machines=dict(setting.workers),
        slowest_link=proposal.cluster.slowest_link(plan.shares),
    )


def machines_benched(proposal: Proposal, step: int) -> Iterator[AnyEvent]:
    """A MachineBenched event and a Notice for each benched machine; once, since the group ends with such a plan."""
    plan = proposal.plan
    left = sorted(set(proposal.cluster.machines) - {*plan.benched})
    if len(plan.benched) > _FEW_BENCHED:
        yield from _many_benched(proposal, step)
        return
    for machine in plan.benched:
        with_it = if_kept(proposal.cluster, plan, machine).prediction
        reason = explain_benched(proposal.cluster, plan, machine)
        if with_it.step_s <= plan.prediction.step_s:
            reason = f"{machine} is benched for a while: {left[0]} shows how fast it is alone"
        yield MachineBenched(
            step=step + 1,
            machine=machine,
            reason=reason,
            samples_per_s=plan.prediction.samples_per_s,
            samples_per_s_with_it=with_it.samples_per_s,
        )
        yield Notice(text=reason)


def _many_benched(proposal: Proposal, step: int) -> Iterator[AnyEvent]:
    """The same for many machines, with one prediction and one Notice for all: each would take a plan of its own."""
    cluster, plan = proposal.cluster, proposal.plan
    with_them = make_plan(cluster, plan.prediction.samples, plan.policy, cluster.machines).prediction
    reason = (
        f"{len(plan.benched)} machines are benched: with them a step would take {seconds_text(with_them.step_s)} "
        f"instead of {seconds_text(plan.prediction.step_s)}"
    )
    without_s, with_s = plan.prediction.samples_per_s, with_them.samples_per_s
    for machine in plan.benched:
        yield MachineBenched(
            step=step + 1, machine=machine, reason=reason, samples_per_s=without_s, samples_per_s_with_it=with_s
        )
    yield Notice(text=reason)
