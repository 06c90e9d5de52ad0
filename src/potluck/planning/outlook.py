"""All that `potluck plan` prints, as data."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from potluck.planning.bench_rule import BenchTerms, steps_left_of, with_bench_threshold
from potluck.planning.cluster import Cluster
from potluck.planning.exchange_words import explain_modes
from potluck.planning.exchanges import ModeOutlook, RunTerms, choose_mode, predict_modes
from potluck.planning.explain import explain, explain_alone, explain_kept, time_text
from potluck.planning.plan import Plan, make_plan
from potluck.planning.what_if import Added, add_one_by_one, with_links_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A plan, and the plans with fewer machines and with faster links."""

    cluster: Cluster
    plan: Plan
    added: list[Added]
    with_cable: Plan | None
    """The plan with faster links; None if no link was measured."""
    lines: list[str]
    exchanges: list[ModeOutlook]
    """Every mode of exchange, exact first."""
    loss_price: float = 0.0
    """The price in loss, in percent, up to which `--exchange auto` may go."""
    exchange: str = "exact"
    """The mode that was asked for."""
    num_steps: int | None = None
    before: Plan | None = None
    """The plan for the machines that were measured, where the question is about others."""

    @property
    def solo_sum(self) -> float:
        """Solo samples/s of all machines together."""
        return sum(self.cluster.solo_speeds(self.plan.prediction.samples).values())

    @property
    def exchange_lines(self) -> list[str]:
        """What `--exchange auto` would take, and remarks on the modes."""
        return explain_modes(self.exchanges, self.loss_price)

    @property
    def finish_lines(self) -> list[str]:
        """How long the run takes in the mode that was asked for, if its number of steps is known."""
        if self.num_steps is None:
            return []
        low_s, usual_s, high_s = self._finish_s(self.num_steps)
        mode = self._asked
        return [
            f"{self.num_steps:,} steps with --exchange {mode.mode} take {time_text(usual_s)} "
            f"(between {time_text(low_s)} and {time_text(high_s)}): {mode.samples_per_s:,.1f} samples/s"
        ]

    @property
    def _asked(self) -> ModeOutlook:
        if self.exchange == "auto":
            return choose_mode(self.exchanges, self.loss_price)
        return next((mode for mode in self.exchanges if mode.mode == self.exchange), self.exchanges[0])

    def _finish_s(self, num_steps: int) -> tuple[float, float, float]:
        """Seconds of all steps: at best, as predicted, at worst."""
        usual_s, error = (
            num_steps * self.plan.prediction.samples / self._asked.samples_per_s,
            self.plan.prediction.doubt,
        )
        return usual_s * (1 - error), usual_s, usual_s * (1 + error)

    def as_data(self) -> dict[str, Any]:
        """The JSON object for scripts: keys are only ever added."""
        step = self.plan.prediction
        low, high = step.band
        return {
            "policy": self.plan.policy,
            "global_batch": step.samples,
            "shares": self.plan.share_of,
            "benched": list(self.plan.benched),
            "step_s": step.step_s,
            "samples_per_s": step.samples_per_s,
            "samples_per_s_low": low,
            "samples_per_s_high": high,
            "sum_of_solo_samples_per_s": self.solo_sum,
            "work_s": dict(zip(self.plan.workers, step.work_s, strict=True)),
            "lateness_s": step.lateness_s,
            "exposed_exchange_s": step.exposed_exchange_s,
            "overhead_s": step.overhead_s,
            "added": [
                {
                    "machine": row.machine,
                    "solo_samples_per_s": row.solo_samples_per_s,
                    "samples_per_s": row.plan.prediction.samples_per_s,
                    "benched": list(row.plan.benched),
                }
                for row in self.added
            ],
            "samples_per_s_with_cable": None if self.with_cable is None else self.with_cable.prediction.samples_per_s,
            "explanation": self.lines,
            "exchanges": [mode.as_data() for mode in self.exchanges],
            "exchange_auto": choose_mode(self.exchanges, self.loss_price).mode,
            "exchange_explanation": self.exchange_lines,
            "samples_per_s_before": None if self.before is None else self.before.prediction.samples_per_s,
            "finish_s": None if self.num_steps is None else self._finish_s(self.num_steps)[1],
            "finish_s_low": None if self.num_steps is None else self._finish_s(self.num_steps)[0],
            "finish_s_high": None if self.num_steps is None else self._finish_s(self.num_steps)[2],
        }


def look_ahead(
    cluster: Cluster,
    batch: int,
    policy: str,
    keep: Collection[str],
    *,
    cable_bytes_per_s: float,
    num_steps: int | None = None,
    terms: RunTerms | None = None,
    loss_price: float = 0.0,
) -> Outlook:
    """The plan for the cluster, the plans for its fastest machines, and the plan with cables if links were measured.

    `terms`: what modes of exchange are predicted for; by default the same batch, policy, machines and steps.
    """
    shortest = make_plan(cluster, batch, policy, keep)
    plan = with_bench_threshold(cluster, shortest, BenchTerms(steps_left=steps_left_of(num_steps, 0)))
    are_measured = any(link.is_measured for link in cluster.links.values())
    return Outlook(
        cluster=cluster,
        plan=plan,
        added=add_one_by_one(cluster, batch, policy, keep, num_steps),
        with_cable=(
            with_links_of(cluster, batch, cable_bytes_per_s, policy, keep, num_steps=num_steps)
            if are_measured
            else None
        ),
        exchanges=predict_modes(cluster, terms or RunTerms(batch=batch, policy=policy, keep=keep, num_steps=num_steps)),
        loss_price=loss_price,
        num_steps=num_steps,
        lines=[*explain(cluster, plan), *explain_kept(plan, shortest, num_steps), *explain_alone(cluster, plan)],
    )
