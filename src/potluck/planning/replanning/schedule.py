"""After which commits workers compare their plan with the best one, and what must be gained before they change it.

Every worker counts for itself, from the same commits and the same numbers, so all act at the same step.
"""

from dataclasses import dataclass

from potluck.planning.plan import LEAST_GAIN

_EVERY = 4
_STREAK = 3
_URGENT_GAIN = 0.15
_FIRST_RETELLING, _RETELL_EVERY = 13, 48  # commits


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """One comparison of the plan in force with the best one."""

    least_gain: float
    streak: int = 1
    """Checks in a row that must want another plan, unless it is urgent."""


# After a group forms, or a machine is not what it was: a first plan from one timing each (the first step is odd), a
# correction if that misled, and a finer one from all timings so far; a plan from kept profiles is not given up for one
# timing. Later a machine that wanders a little is not worth following.
FIRST_CHECK = PlanCheck(LEAST_GAIN)
_EARLY = {2: PlanCheck(LEAST_GAIN, 2), 5: PlanCheck(2 * LEAST_GAIN), 8: PlanCheck(0.03)}
_LATE = PlanCheck(LEAST_GAIN, _STREAK)


def check_after(num_commits: int) -> PlanCheck | None:
    """How plans are compared after so many commits since a group formed or changed urgently; None if they are not."""
    if num_commits > max(_EARLY):
        return None if num_commits % _EVERY else _LATE
    return _EARLY.get(num_commits)


def is_urgent(gain: float) -> bool:
    """So much of a step at stake that one check is enough."""
    return gain > _URGENT_GAIN


def next_retelling(num_commits: int) -> int:
    """A plan that was told after so many commits, and stays, is told again with newer numbers after this many."""
    return _FIRST_RETELLING if num_commits < _FIRST_RETELLING else num_commits + _RETELL_EVERY
