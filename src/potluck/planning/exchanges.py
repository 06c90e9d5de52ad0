"""Predicts a run in every mode of exchange, and chooses one: the fastest whose price in loss the user accepts."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from potluck.planning.bench_rule import plan_run
from potluck.planning.cluster import Cluster
from potluck.planning.codes import CODES, INT4
from potluck.planning.islands import Partition, find_islands, islands_of
from potluck.planning.limits import limit_of_rounds, limit_of_steps
from potluck.planning.plan import make_plan, plan_with_all
from potluck.planning.round_rule import LEAST_ROUNDS, warm_up_steps
from potluck.planning.rounds import (
    RoundPlan,
    every_worker,
    plan_rounds,
    without_idlers,
)

_TIE = 0.05  # a mode with a lower price, or that comes first in the list, may be slower by this part
_LEAST_OTHERS = 0.05
_KNOWN_OPTIMIZERS = ("adam", "adamw", "sgd")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """What a run's modes of exchange are predicted for."""

    batch: int
    num_steps: int | None = None
    """None if the length of the run is not known."""
    policy: str = "dynamic"
    keep: Collection[str] = ()
    """Machines that are never left out."""
    round_steps: int | None = None
    """Steps of a round that the user chose."""
    warm_up_steps: int | None = None
    """Steps before the first round that the user chose."""
    has_batch_norm: bool = False
    optimizer: str = "adamw"
    """The optimizer in lower case; "" if it is none for which rounds were tried."""

    @property
    def warm_up(self) -> int:
        """Steps before the first round; 0 if nobody knows how long the run is."""
        if self.warm_up_steps is not None:
            return self.warm_up_steps
        return 0 if self.num_steps is None else warm_up_steps(self.num_steps, None)

    @property
    def rounds_of(self) -> int | None:
        """Steps that are left for rounds."""
        return None if self.num_steps is None else max(0, self.num_steps - self.warm_up)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a mode is not for this run."""

    text: str
    holds_by_name: bool = True
    """Whether the mode is refused even if the user asks for it by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeOutlook:
    """What one mode of exchange would bring."""

    mode: str
    samples_per_s: float
    """Over the whole run if its length is known, warm-up included; else after the warm-up."""
    steady_samples_per_s: float
    """After the warm-up."""
    limit: str
    """What keeps the run from being faster, in a few words."""
    wire_bytes: float
    """Bytes that a worker sends for a step, on average over a round, after the warm-up."""
    left_out: tuple[str, ...] = ()
    """Machines that do not take part."""
    price_percent: float = 0.0
    """By how much higher the loss should end than in exact mode."""
    round_steps: int | None = None
    warm_up_steps: int | None = None
    """None where there are no rounds, or if the length of the run is not known."""
    islands: Partition = ()
    """The machines of each member of the rounds."""
    refusals: tuple[Refusal, ...] = ()

    @property
    def price_band(self) -> tuple[int, int]:
        """Percent between which the price is expected: half of it, and twice."""
        return round(self.price_percent / 2), math.ceil(2 * self.price_percent)

    def as_data(self) -> dict[str, Any]:
        """The JSON object for scripts."""
        return {
            "mode": self.mode,
            "samples_per_s": self.samples_per_s,
            "samples_per_s_after_warm_up": self.steady_samples_per_s,
            "limit": self.limit,
            "wire_bytes_per_step": round(self.wire_bytes),
            "left_out": list(self.left_out),
            "loss_price_percent": self.price_percent,
            "loss_price_percent_low": self.price_band[0],
            "loss_price_percent_high": self.price_band[1],
            "round_steps": self.round_steps,
            "warm_up_steps": self.warm_up_steps,
            "islands": [list(island) for island in self.islands],
            "refused": [refusal.text for refusal in self.refusals],
        }


def predict_modes(cluster: Cluster, terms: RunTerms) -> list[ModeOutlook]:
    """Every mode for this cluster: exact, fp16, int8, int4, rounds, islands; exact only where nobody else trains."""
    if len(cluster.workers) < 2:
        return [_every_step(cluster, terms, "exact")]
    codes = [_every_step(cluster, terms, name) for name in CODES]
    return [*codes, _rounds(cluster, terms), _islands(cluster, terms)]


def choose_mode(modes: Sequence[ModeOutlook], loss_price: float = 0.0) -> ModeOutlook:
    """The fastest mode that is not refused and costs at most `loss_price` percent of loss.

    Of modes within 5 % of each other the one with the lowest price, and of those the first: exact before all others.
    """
    allowed = [mode for mode in modes if not mode.refusals and mode.price_percent <= loss_price]
    fastest = max(mode.samples_per_s for mode in allowed)
    almost = [mode for mode in allowed if mode.samples_per_s >= (1 - _TIE) * fastest]
    return min(almost, key=lambda mode: mode.price_percent)


def with_code(cluster: Cluster, name: str) -> Cluster:
    """The cluster whose workers exchange gradients in this code."""
    return replace(cluster, exchange=replace(cluster.exchange, code=CODES[name]))


def _every_step(cluster: Cluster, terms: RunTerms, mode: str) -> ModeOutlook:
    coded = with_code(cluster, mode)
    plan = plan_run(coded, terms.batch, terms.policy, terms.keep, terms.num_steps)
    num_workers = sum(share > 0 for share in plan.shares)
    is_alone = len(cluster.machines) - len(plan.benched) == 1
    return ModeOutlook(
        mode=mode,
        samples_per_s=plan.prediction.samples_per_s,
        steady_samples_per_s=plan.prediction.samples_per_s,
        limit=limit_of_steps(coded, plan),
        wire_bytes=0.0 if is_alone else coded.exchange.wire_bytes(num_workers),
        left_out=plan.benched,
        price_percent=CODES[mode].price_percent,
    )


def _rounds(cluster: Cluster, terms: RunTerms) -> ModeOutlook:
    plan = plan_rounds(cluster, terms.batch, every_worker(cluster), round_steps=terms.round_steps)
    return _of_rounds(
        cluster, terms, "rounds", without_idlers(cluster, terms.batch, plan, terms.keep, terms.round_steps)
    )


def _islands(cluster: Cluster, terms: RunTerms) -> ModeOutlook:
    plan = find_islands(cluster, terms.batch, cluster.machines, round_steps=terms.round_steps)
    plan = without_idlers(cluster, terms.batch, plan, terms.keep, terms.round_steps)
    found = _of_rounds(cluster, terms, "islands", plan)
    together = [island for island in found.islands if len(island) > 1]
    if len(found.islands) == 1 and not together:
        why = f"only {found.islands[0][0]} would be left"
    elif len(found.islands) == 1 and not cluster.pairs:
        why = "the links between the machines were not measured: run potluck profile, or name islands with --islands"
    elif len(found.islands) == 1:
        why = "the links of all machines are good enough for one island: that is exact"
    elif not together:
        why = "no two machines have a link that is good enough for an island: that is rounds"
    else:
        return found
    return replace(found, refusals=(Refusal(text=why), *found.refusals))


def _of_rounds(cluster: Cluster, terms: RunTerms, mode: str, plan: RoundPlan) -> ModeOutlook:
    partition = islands_of(cluster, plan)
    present = {name for island in partition for name in island}
    speed = plan.samples_per_s
    if terms.num_steps is not None and len(plan.members) > 1:
        warm_up = min(terms.warm_up, terms.num_steps)
        together = with_code(cluster, INT4.name).of(present)
        in_step = plan_with_all(together, terms.batch) or make_plan(together, terms.batch)
        whole_s = warm_up * in_step.prediction.step_s + (terms.num_steps - warm_up) * plan.mean_step_s
        speed = terms.num_steps * terms.batch / whole_s
    inside = max((len(member) for member in plan.members), default=1)
    sent = cluster.exchange.wire_bytes(inside) if inside > 1 else 0.0
    meeting = with_code(cluster, INT4.name).exchange.wire_bytes(len(plan.members))
    return ModeOutlook(
        mode=mode,
        samples_per_s=speed,
        steady_samples_per_s=plan.samples_per_s,
        limit=limit_of_rounds(cluster, plan),
        wire_bytes=sent + meeting / plan.round_steps,
        left_out=tuple(name for name in cluster.machines if name not in present),
        price_percent=plan.price_percent,
        round_steps=plan.round_steps,
        warm_up_steps=terms.warm_up if terms.num_steps is not None or terms.warm_up_steps is not None else None,
        islands=partition,
        refusals=tuple(_refusals(terms, plan)),
    )


def _refusals(terms: RunTerms, plan: RoundPlan) -> list[Refusal]:
    found = []
    is_named = terms.round_steps is not None and terms.warm_up_steps is not None
    if terms.rounds_of is not None and terms.rounds_of < LEAST_ROUNDS * plan.round_steps and not is_named:
        found.append(
            Refusal(
                text=f"{terms.num_steps} steps are too few: after {terms.warm_up} steps of warm-up they leave "
                f"{terms.rounds_of // plan.round_steps} rounds of {plan.round_steps} steps, and rounds need "
                f"{LEAST_ROUNDS} to pay"
            )
        )
    others = 1 - max(plan.weights)
    if others < _LEAST_OTHERS:
        found.append(
            Refusal(text=f"the other machines would do {100 * others:.0f} % of the work only", holds_by_name=False)
        )
    if terms.has_batch_norm:
        found.append(Refusal(text="the model has BatchNorm, for which nobody has tried rounds", holds_by_name=False))
    if terms.optimizer not in _KNOWN_OPTIMIZERS:
        found.append(Refusal(text="rounds were tried with AdamW, Adam and SGD only"))
    return found
