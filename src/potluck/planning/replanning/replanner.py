"""The plan of one group of workers as a frozen value: costs go in, the next Replanner and the run's events come out."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from potluck.events.types import AnyEvent
from potluck.planning.measured_exchange import RingMeasurement
from potluck.planning.plan import Plan
from potluck.planning.replanning.announcements import machines_benched, plan_changed
from potluck.planning.replanning.bench_votes import vote
from potluck.planning.replanning.cost_report import CostReport
from potluck.planning.replanning.proposal import Proposal, propose, with_guesses
from potluck.planning.replanning.schedule import FIRST_CHECK, PlanCheck, check_after, is_urgent, next_retelling
from potluck.planning.replanning.setting import GroupSetting
from potluck.planning.replanning.slow_links import FIRST_ADVICE, advise, is_limited_by_link

Outcome: TypeAlias = tuple["Replanner", list[AnyEvent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanner:
    """The plan in force, and the results of past checks of the plan.

    Every worker has a Replanner of its own and hands it the same numbers after the same commits, so that all workers
    come to the same plan without a message about it.
    """

    setting: GroupSetting | None = None
    """None before the first group has formed."""
    in_force: Proposal | None = None
    """None while some worker's cost is unknown: then all shares are equal."""
    formed_after: int = 0
    """The run's committed steps when the group formed."""
    num_commits: int = 0
    """Commits since the group formed."""
    num_since_change: int = 0
    """Commits since the group formed or the plan changed urgently: then the schedule of checks begins again."""
    tell_again_at: int = next_retelling(0)
    """From this num_since_change on, the next check that keeps the plan emits its event again, with newer numbers."""
    evidence: float = 0.0
    """The sum of the gains that the last checks in a row found in another plan."""
    bench_streak: int = 0
    """Checks in a row that wanted fewer machines."""
    largest_ring: RingMeasurement | None = None
    """Saved for later runs: once machines are benched, only the larger ring before shows why."""
    is_trusted: bool = True
    """False after workers came to different plans."""
    has_advised: bool = False
    """Whether this run has looked for a mode of exchange that is faster than its own."""

    @property
    def plan(self) -> Plan | None:
        return None if self.in_force is None else self.in_force.plan

    @property
    def benched(self) -> tuple[str, ...]:
        """Machines that the plan leaves out of the ring."""
        return () if self.in_force is None else self.in_force.plan.benched

    def checks_next(self, *, of_round: bool = False) -> bool:
        """Whether the plan is checked at the next commit, so that workers should send fresh costs with it."""
        return self._check(of_round=of_round) is not None

    def shares(self, workers: Sequence[str]) -> tuple[int, ...]:
        """Every worker's share of the global batch: fixed by users, else planned, else equal."""
        if self.setting is not None and self.setting.names == tuple(workers):
            if self.setting.fixed_shares:
                return self.setting.fixed_shares
            if self.plan is not None:
                return self.plan.shares
        return (1,) * len(workers)

    def distrusted(self) -> "Replanner":
        """The Replanner after workers came to different plans: it makes no more plans, so shares are equal or fixed."""
        return replace(self, is_trusted=False, in_force=None)

    def formed(self, setting: GroupSetting, step: int) -> Outcome:
        """Make the first plan of a group that formed after `step` committed steps, from what its workers know.

        A worker that does not know its cost counts as an average worker.
        """
        fresh = Replanner(
            setting=setting,
            formed_after=step,
            largest_ring=self.largest_ring,
            is_trusted=self.is_trusted,
            has_advised=self.has_advised,
        )
        return fresh._checked(setting, with_guesses(setting.costs, setting.batch), step, FIRST_CHECK)

    def committed(self, costs: Sequence[CostReport], step: int, *, of_round: bool = False) -> Outcome:
        """Check the plan, if that is due, with the costs that workers sent with the last of `step` committed steps."""
        check = self._check(of_round=of_round)
        after = replace(self, num_commits=self.num_commits + 1, num_since_change=self.num_since_change + 1)
        if check is None or self.setting is None:
            return after, []
        return after._checked(self.setting, costs, step, check)

    def _check(self, *, of_round: bool) -> PlanCheck | None:
        """The check of the plan that is due at the next commit."""
        step_s = 0.0 if self.plan is None else self.plan.prediction.step_s
        num_workers = 1 if self.setting is None else len(self.setting.workers)
        return check_after(
            self.num_since_change,
            step_s=step_s,
            of_round=of_round,
            num_workers=num_workers,
            formed_after=self.formed_after,
        )

    def _checked(self, setting: GroupSetting, costs: Sequence[CostReport], step: int, check: PlanCheck) -> Outcome:
        """Compare the plan in force with the best plan, and with the best plan without some machines."""
        if not setting.is_planned or not self.is_trusted:
            return self, []
        wanted = replace(setting, keep=setting.machines) if check.is_urgent_only else setting
        proposal = propose(wanted, costs, self.plan, check.least_gain)
        if proposal is None:
            return self, []
        if check.is_urgent_only:
            return self._changed_at_once(setting, costs, proposal, step)
        bench = vote(setting, step, self.plan, proposal, num_commits=self.num_commits, streak=self.bench_streak)
        if bench.proposal is None and proposal.plan.benched:
            proposal = propose(replace(setting, keep=setting.machines), costs, self.plan, check.least_gain)
            assert proposal is not None
        chosen = bench.proposal or proposal
        after = replace(
            self,
            bench_streak=bench.streak,
            evidence=self.evidence + chosen.gain if chosen.reason else 0.0,
            largest_ring=_larger(self.largest_ring, chosen.ring),
        )
        after, advice = after._advised(setting, chosen)
        if not chosen.reason:
            after, events = after._confirmed(setting, costs, chosen, step)
            return after, [*events, *advice]
        needed = check.evidence_among(statistics.fmean(report.spread for report in costs))
        is_agreed = bench.proposal is not None or after.evidence >= needed or is_urgent(chosen.gain)
        if self.in_force is None or is_agreed:
            after, events = after._changed(setting, costs, chosen, step)
            return after, [*events, *advice]
        return after, advice

    def _changed_at_once(
        self, setting: GroupSetting, costs: Sequence[CostReport], proposal: Proposal, step: int
    ) -> Outcome:
        """Take a plan of the same machines whose gain is urgent; anything else is left to the checks by number."""
        is_other_group = proposal.plan.benched != self.benched
        if self.in_force is None or is_other_group or not (proposal.reason and is_urgent(proposal.gain)):
            return self, []
        return self._changed(setting, costs, proposal, step)

    def _advised(self, setting: GroupSetting, chosen: Proposal) -> Outcome:
        """Once, if steps wait much for gradients or a machine is benched for its link: which mode would be faster."""
        is_settled = self.num_commits >= FIRST_ADVICE or bool(chosen.plan.benched)
        if self.has_advised or not is_settled or not is_limited_by_link(chosen):
            return self, []
        advice = advise(setting, chosen)
        return replace(self, has_advised=True), [] if advice is None else [advice]

    def _changed(self, setting: GroupSetting, costs: Sequence[CostReport], proposal: Proposal, step: int) -> Outcome:
        """Put the proposal in force, and return the events that record it."""
        # Urgent: a machine's speed has changed. Restart the early checks, which time the machine at its new share.
        num_since_change = 0 if is_urgent(proposal.gain) else self.num_since_change
        after = replace(
            self,
            in_force=proposal,
            num_since_change=num_since_change,
            tell_again_at=next_retelling(num_since_change),
            evidence=0.0,
        )
        return after, [plan_changed(setting, costs, proposal, step), *machines_benched(proposal, step)]

    def _confirmed(self, setting: GroupSetting, costs: Sequence[CostReport], proposal: Proposal, step: int) -> Outcome:
        """Keep the plan with its newer prediction; now and then emit it, for reports to compare with measured steps."""
        if self.num_since_change < self.tell_again_at:
            return replace(self, in_force=proposal), []
        after = replace(self, in_force=proposal, tell_again_at=next_retelling(self.num_since_change))
        return after, [plan_changed(setting, costs, proposal, step)]


def _larger(before: RingMeasurement | None, now: RingMeasurement | None) -> RingMeasurement | None:
    """The measurement of the larger ring, the newer of equals; a single worker is no ring."""
    if now is None or len(now.machines) < max(2, 0 if before is None else len(before.machines)):
        return before
    return now
