"""What workers tell each other in a run, and what every one of them concludes from it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from potluck.planning.cluster import Cluster, Worker
from potluck.planning.costs import ComputeProfile, Exchange, LinkProfile
from potluck.planning.plan import LEAST_GAIN, Plan, describe, make_plan, should_change
from potluck.planning.seen import RingSeen, as_seen

_NUM_BENDS = 5


class Told(NamedTuple):
    """One worker's numbers, as they travel: floats only, 0 for what it does not know."""

    fixed_s: float
    per_sample_s: float
    memory_cap: float
    error: float
    exchange_wait_s: float
    """The usual time from its last gradient to the end of the exchange."""
    bends: tuple[float, ...] = (0.0,) * 2 * _NUM_BENDS
    """Of a curve, around the worker's part: samples and seconds in turns."""

    @classmethod
    def of(cls, profile: ComputeProfile | None, part: int, exchange_wait_s: float) -> "Told":
        """What a worker with this cost and about so many samples tells."""
        if profile is None:
            return cls(0.0, 0.0, 0.0, 0.0, exchange_wait_s)
        cost = profile.near(max(1, part), _NUM_BENDS)
        bends = [float(number) for point in cost.curve for number in point]
        return cls(
            cost.fixed_s,
            cost.per_sample_s,
            float(cost.memory_cap or 0),
            cost.error,
            exchange_wait_s,
            (*bends, *[0.0] * (2 * _NUM_BENDS - len(bends))),
        )

    @classmethod
    def read(cls, floats: Sequence[float]) -> "Told":
        """From `floats`, NUM_TOLD of them."""
        fixed_s, per_sample_s, memory_cap, error, exchange_wait_s, *bends = floats
        return cls(fixed_s, per_sample_s, memory_cap, error, exchange_wait_s, tuple(bends))

    @property
    def floats(self) -> tuple[float, ...]:
        return (*self[:-1], *self.bends)

    @property
    def profile(self) -> ComputeProfile | None:
        """The cost, if the worker knows it."""
        if self.per_sample_s <= 0:
            return None
        pairs = zip(self.bends[::2], self.bends[1::2], strict=True)
        return ComputeProfile(
            fixed_s=self.fixed_s,
            per_sample_s=self.per_sample_s,
            memory_cap=int(self.memory_cap) or None,
            error=self.error,
            curve=tuple((int(samples), seconds) for samples, seconds in pairs if samples),
        )


NUM_TOLD = len(Told.of(None, 0, 0.0).floats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What does not change from step to step."""

    batch: int
    policy: str
    exchange: Exchange
    links: Mapping[str, LinkProfile]
    keep: Collection[str] = ()
    least_gain: float = LEAST_GAIN


@dataclass(frozen=True, slots=True)
class Decision:
    """The plan for the steps that follow, and why it differs from the one before; no reason if it does not."""

    plan: Plan
    cluster: Cluster
    """What it was made from: costs, and the exchange as it was seen."""
    reason: str = ""
    gain: float = 0.0
    """The part of a step that it should save."""
    ring: RingSeen | None = None
    """What the plan before has shown of the exchange."""


def rebalance(
    setting: Setting, workers: Sequence[tuple[str, str]], told: Sequence[Told], current: Plan | None
) -> Decision | None:
    """What every worker concludes from everybody's numbers, by (name, machine); None while a cost is unknown.

    A worker that joins without a profile gets its first samples by an even split.
    """
    profiles = [numbers.profile for numbers in told]
    if any(profile is None for profile in profiles):
        return None
    members = tuple(
        Worker(name=name, machine=machine, compute=profile)
        for (name, machine), profile in zip(workers, profiles, strict=True)
        if profile is not None
    )
    cluster = Cluster(workers=members, links=setting.links, exchange=setting.exchange)
    names = tuple(worker.name for worker in members)
    if current is None or current.workers != names:
        plan = make_plan(cluster, setting.batch, setting.policy, setting.keep)
        even = make_plan(cluster, setting.batch, "static")
        if plan.policy == "dynamic" and not should_change(even, plan, setting.least_gain):
            plan = replace(even, policy=plan.policy)  # machines that are alike: what differs is noise
        return Decision(plan, cluster, "the workers changed")
    ring = _ring_seen(cluster, told, current)
    cluster = as_seen(cluster, cluster.is_active(np.array(current.shares)), ring)
    now = describe(cluster, current.shares, current.policy)
    if setting.policy != "dynamic":
        return Decision(now, cluster, ring=ring)
    proposed = make_plan(cluster, setting.batch, setting.policy, setting.keep)
    if not should_change(now, proposed, _least_gain(setting, current)):
        return Decision(now, cluster, ring=ring)
    gain = 1 - proposed.prediction.step_s / now.prediction.step_s
    return Decision(proposed, cluster, f"a step should be {100 * gain:.0f} % shorter", gain, ring)


def _least_gain(setting: Setting, current: Plan) -> float:
    """Machines that share equally are alike as far as anybody knew: small differences are noise."""
    is_even = max(current.shares) - min(current.shares) <= 1
    return max(setting.least_gain, LEAST_GAIN) if is_even else setting.least_gain


def _ring_seen(cluster: Cluster, told: Sequence[Told], current: Plan) -> RingSeen:
    waits = [numbers.exchange_wait_s for numbers, share in zip(told, current.shares, strict=True) if share > 0]
    machines = [worker.machine for worker, share in zip(cluster.workers, current.shares, strict=True) if share > 0]
    work_s = float(cluster.table.seconds(np.array(current.shares)).max())
    return RingSeen(machines=tuple(sorted(machines)), work_s=work_s, exposed_s=min(waits))
