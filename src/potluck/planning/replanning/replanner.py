"""The plan of one group of workers as a frozen value: numbers in, the next Replanner and a run's events out."""

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

Outcome: TypeAlias = tuple["Replanner", list[AnyEvent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanner:
    """The plan in force, and what past checks have shown of it.

    Every worker has a Replanner of its own and hands it the same numbers after the same commits, so that all workers
    come to the same plan without a message about it.
    """

    setting: GroupSetting | None = None
    """None before the first group has formed."""
    in_force: Proposal | None = None
    """None while some worker's cost is unknown: then all shares are equal."""
    num_commits: int = 0
    """Of this group."""
    num_since_change: int = 0
    """Commits since the group formed or a machine was not what it was: the schedule of checks begins anew then."""
    tell_again_at: int = next_retelling(0)
    change_streak: int = 0
    """Checks in a row that wanted another plan."""
    bench_streak: int = 0
    """Checks in a row that wanted fewer machines."""
    largest_ring: RingMeasurement | None = None
    """Kept for later runs: after machines were benched it is the one that says why."""
    is_trusted: bool = True

    @property
    def plan(self) -> Plan | None:
        return None if self.in_force is None else self.in_force.plan

    @property
    def benched(self) -> tuple[str, ...]:
        """Machines that the plan leaves out of the ring."""
        return () if self.in_force is None else self.in_force.plan.benched

    @property
    def checks_next(self) -> bool:
        """Whether the next commit's numbers are compared with the plan, so that they should be fresh."""
        return check_after(self.num_since_change) is not None

    def shares(self, workers: Sequence[str]) -> tuple[int, ...]:
        """Every worker's share of the global batch: fixed by people, as planned, or the same for all."""
        if self.setting is not None and self.setting.names == tuple(workers):
            if self.setting.fixed_shares:
                return self.setting.fixed_shares
            if self.plan is not None:
                return self.plan.shares
        return (1,) * len(workers)

    def distrusted(self) -> "Replanner":
        """Workers came to different plans: from now on, only equal shares."""
        return replace(self, is_trusted=False, in_force=None)

    def formed(self, setting: GroupSetting, step: int) -> Outcome:
        """A group has formed after `step` committed steps: plan from what its workers know of themselves.

        A worker that knows nothing of its cost counts as an average one.
        """
        fresh = Replanner(setting=setting, largest_ring=self.largest_ring, is_trusted=self.is_trusted)
        return fresh._checked(setting, with_guesses(setting.costs, setting.batch), step, FIRST_CHECK)

    def committed(self, costs: Sequence[CostReport], step: int) -> Outcome:
        """`step` steps are committed, and with the last one came every worker's costs: a new plan is for the next."""
        check = check_after(self.num_since_change)
        after = replace(self, num_commits=self.num_commits + 1, num_since_change=self.num_since_change + 1)
        if check is None or self.setting is None:
            return after, []
        return after._checked(self.setting, costs, step, check)

    def _checked(self, setting: GroupSetting, costs: Sequence[CostReport], step: int, check: PlanCheck) -> Outcome:
        """Compare the plan in force with the best one, and with the best one without some machines."""
        if not setting.is_planned or not self.is_trusted:
            return self, []
        proposal = propose(setting, costs, self.plan, check.least_gain)
        if proposal is None:
            return self, []
        bench = vote(setting, step, self.plan, proposal, num_commits=self.num_commits, streak=self.bench_streak)
        if bench.proposal is None and proposal.plan.benched:
            proposal = propose(replace(setting, keep=setting.machines), costs, self.plan, check.least_gain)
            assert proposal is not None
        chosen = bench.proposal or proposal
        after = replace(
            self,
            bench_streak=bench.streak,
            change_streak=self.change_streak + 1 if chosen.reason else 0,
            largest_ring=_larger(self.largest_ring, chosen.ring),
        )
        if not chosen.reason:
            return after._confirmed(setting, costs, chosen, step)
        is_agreed = bench.proposal is not None or after.change_streak >= check.streak or is_urgent(chosen.gain)
        if self.in_force is None or is_agreed:
            return after._changed(setting, costs, chosen, step)
        return after, []

    def _changed(self, setting: GroupSetting, costs: Sequence[CostReport], proposal: Proposal, step: int) -> Outcome:
        """The proposal takes force and is told."""
        # Urgent: a machine is not what it was. Check early again, with its work at another share.
        num_since_change = 0 if is_urgent(proposal.gain) else self.num_since_change
        after = replace(
            self,
            in_force=proposal,
            num_since_change=num_since_change,
            tell_again_at=next_retelling(num_since_change),
            change_streak=0,
        )
        return after, [plan_changed(setting, costs, proposal, step), *machines_benched(proposal, step)]

    def _confirmed(self, setting: GroupSetting, costs: Sequence[CostReport], proposal: Proposal, step: int) -> Outcome:
        """The plan stays. What is known of it is newer, and reports hold that against what was measured."""
        if self.num_since_change < self.tell_again_at:
            return replace(self, in_force=proposal), []
        after = replace(self, in_force=proposal, tell_again_at=next_retelling(self.num_since_change))
        return after, [plan_changed(setting, costs, proposal, step)]


def _larger(before: RingMeasurement | None, now: RingMeasurement | None) -> RingMeasurement | None:
    """The measurement of the larger ring, of equals the newer; one worker is no ring."""
    if now is None or len(now.machines) < max(2, 0 if before is None else len(before.machines)):
        return before
    return now
