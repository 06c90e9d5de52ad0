"""The schedule of plan checks: after which commits workers check their plan, and how much a new plan must gain.

Every worker counts the same commits and gets the same numbers, so all workers act at the same step.
"""

from dataclasses import dataclass

from potluck.planning.plan import LEAST_GAIN

_EVERY, _MOST_EVERY = 4, 16  # commits
# Steps from here on are long: a look at every commit costs next to nothing, and a late one costs several long steps.
_LONG_STEP_S, _LONG_STEP_S_PER_WORKER = 0.25, 0.0125
_EVERY_S = 0.4  # of steps that are short: costs are fitted anew for every check
_WORKERS_A_COMMIT = 250  # a check of thousands of workers takes a second: it must not cost more than it can gain
_URGENT_GAIN = 0.25
_FIRST_RETELLING, _RETELL_EVERY = 13, 48  # commits
# Where steps vary by more than this, gains often are none: such workers need up to _MOST_CAUTION times the evidence.
_USUAL_SPREAD, _MOST_CAUTION = 0.06, 2.0


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """One comparison of the plan in force with the best plan."""

    least_gain: float
    evidence: float = 0.0
    """What the gains of checks in a row must add up to before workers change their plan, unless a gain is urgent."""
    is_urgent_only: bool = False
    """Whether the check only looks for an urgent gain, and leaves no trace if there is none."""

    def evidence_among(self, spread: float) -> float:
        """The evidence that workers need whose steps vary so much, as a relative standard deviation."""
        return self.evidence * min(_MOST_CAUTION, max(1.0, spread / _USUAL_SPREAD))


# After a group forms or a machine's speed changes there are three early checks. A worker's first steps are not typical,
# so the first two change the plan only for much, and the third makes a finer plan from all timings so far. Later a
# large gain counts after a few checks, a small one after many: a drift of a few percent that passes moves nothing.
# Where the run is under way, machines know their costs, and a return disturbs the others: the third wants as much.
FIRST_CHECK = PlanCheck(LEAST_GAIN)
_EARLY = {2: PlanCheck(LEAST_GAIN, 0.25), 5: PlanCheck(LEAST_GAIN, 0.15), 8: PlanCheck(LEAST_GAIN, 0.05)}
_EARLY_UNDER_WAY = {**_EARLY, 8: PlanCheck(LEAST_GAIN, 0.15)}
_UNDER_WAY = 16  # committed steps of a run
_LATE = PlanCheck(LEAST_GAIN, 0.35)
_URGENT = PlanCheck(LEAST_GAIN, is_urgent_only=True)  # between the others, where steps are long
# A round is many steps, so that its timings are steady, and a machine that is late at its end is late by many steps.
_OF_ROUND = PlanCheck(0.01)


def check_after(
    num_commits: int, *, step_s: float = 0.0, of_round: bool = False, num_workers: int = 1, formed_after: int = 0
) -> PlanCheck | None:
    """The check due at the commit after so many commits since a group formed or its plan changed urgently, if any.

    `step_s`: seconds of a step by the plan in force, 0 without a plan. `of_round`: that commit is one of a round, and
    not of a single step. `num_workers`: of the group. `formed_after`: the run's committed steps when the group formed.
    """
    if of_round:
        return _OF_ROUND
    if num_commits > max(_EARLY):
        every = _EVERY if step_s <= 0 else min(max(_EVERY, int(_EVERY_S / step_s)), _MOST_EVERY)
        every = max(every, num_workers // _WORKERS_A_COMMIT)
        due = None if num_commits % every else _LATE
    else:
        due = (_EARLY_UNDER_WAY if formed_after >= _UNDER_WAY else _EARLY).get(num_commits)
    is_long = step_s >= max(_LONG_STEP_S, _LONG_STEP_S_PER_WORKER * num_workers)
    return _URGENT if due is None and is_long and num_commits > min(_EARLY) else due


def is_urgent(gain: float) -> bool:
    """Whether the gain is so large that a single check is enough to change the plan."""
    return gain > _URGENT_GAIN


def next_retelling(num_commits: int) -> int:
    """The commit from which an unchanged plan, last emitted at `num_commits`, is emitted again with newer numbers."""
    return _FIRST_RETELLING if num_commits < _FIRST_RETELLING else num_commits + _RETELL_EVERY
