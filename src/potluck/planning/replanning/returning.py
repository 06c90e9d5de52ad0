"""Decides whether a benched machine comes back, from its own measurements and the plan that benched it."""

from dataclasses import dataclass, replace

from potluck.events.types import AnyEvent, MachineUnbenched, Notice
from potluck.planning.bench_rule import CLEAR_GAIN, BenchTerms, pays
from potluck.planning.costs import ComputeProfile
from potluck.planning.explain import seconds_text
from potluck.planning.replanning.proposal import Proposal
from potluck.planning.what_if import if_kept


@dataclass(frozen=True, slots=True)
class FasterWith:
    """The seconds of a step without a benched machine, and the predicted seconds with the machine."""

    without_s: float
    with_s: float


def heir_of(in_force: Proposal) -> str:
    """The fastest benched machine, which copies the state of the only machine that trains; empty if several train."""
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
    """The step without and with this benched worker's machine; None if the machine's return does not pay.

    `cost` and `stretch` are the worker's own newest measurements; `others_s` is the measured step of the machines that
    train, if known.
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
    # The wrong machine may train alone: the pauses of a ring let machines work in bursts, so a machine that cannot keep
    # up its speed looked fast. Once both are in a ring again, the speed that the machine had alone counts.
    alone_s = cost.seconds(plan.prediction.samples) * (stretch or 1.0)
    clear = replace(terms, least_gain=max(terms.least_gain, CLEAR_GAIN))
    return FasterWith(without_s, alone_s) if pays(without_s, alone_s, clear) else None


def machine_returns(machine: str, step: int, gain: FasterWith | None) -> list[AnyEvent]:
    """The events when a benched machine takes part again, because that is faster or no other machine is left."""
    reason = "the others are gone"
    if gain is not None:
        reason = f"with it a step should take {seconds_text(gain.with_s)} instead of {seconds_text(gain.without_s)}"
    return [
        MachineUnbenched(step=step + 1, machine=machine, reason=reason),
        Notice(text=f"{machine} takes part again: {reason}"),
    ]
