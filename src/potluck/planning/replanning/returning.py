"""Whether a benched machine comes back: it has measured itself, and knows the plan that benched it."""

from dataclasses import dataclass, replace

from potluck.events.types import AnyEvent, MachineUnbenched, Notice
from potluck.planning.bench_rule import CLEAR_GAIN, BenchTerms, pays
from potluck.planning.costs import ComputeProfile
from potluck.planning.explain import seconds_text
from potluck.planning.replanning.proposal import Proposal
from potluck.planning.what_if import if_kept


@dataclass(frozen=True, slots=True)
class FasterWith:
    """What a step takes without a benched machine, and what it should take with it."""

    without_s: float
    with_s: float


def heir_of(in_force: Proposal) -> str:
    """Of the benched machines, the one that goes on if the only machine that trains is lost; empty if two train."""
    cluster, plan = in_force.cluster, in_force.plan
    if len(cluster.machines) - len(plan.benched) > 1:
        return ""
    return max(plan.benched, key=lambda machine: cluster.solo_speed(machine, plan.prediction.samples))


def consider_return(
    in_force: Proposal,
    terms: BenchTerms,
    *,
    worker: str,
    cost: ComputeProfile,
    stretch: float,
    others_s: float | None,
) -> FasterWith | None:
    """What a step would gain from this benched worker's machine; None where its return does not pay.

    `cost` and `stretch` are what the worker now measures of itself, `others_s` what a step takes those who train.
    """
    workers = [replace(each, compute=cost) if each.name == worker else each for each in in_force.cluster.workers]
    cluster = replace(in_force.cluster, workers=tuple(workers))
    machine = next(each.machine for each in workers if each.name == worker)
    plan, without_s = in_force.plan, others_s or in_force.plan.prediction.step_s
    with_it = if_kept(cluster, replace(plan, policy="dynamic"), machine)
    is_alone = len(with_it.benched) == len(cluster.machines) - 1
    if not is_alone and pays(without_s, with_it.prediction.step_s, terms):
        return FasterWith(without_s, with_it.prediction.step_s)
    if not heir_of(in_force):
        return None
    # The wrong machine may train alone: in a ring a machine works in bursts, and one that cannot keep up its pace
    # looks fast. Back in the ring, what it did alone counts.
    alone_s = cost.seconds(plan.prediction.samples) * (stretch or 1.0)
    clear = replace(terms, least_gain=max(terms.least_gain, CLEAR_GAIN))
    return FasterWith(without_s, alone_s) if pays(without_s, alone_s, clear) else None


def machine_returns(machine: str, step: int, gain: FasterWith | None) -> list[AnyEvent]:
    """A benched machine takes part again, because that is faster or because nobody else is left."""
    reason = "the others are gone"
    if gain is not None:
        reason = f"with it a step should take {seconds_text(gain.with_s)} instead of {seconds_text(gain.without_s)}"
    return [
        MachineUnbenched(step=step + 1, machine=machine, reason=reason),
        Notice(text=f"{machine} takes part again: {reason}"),
    ]
