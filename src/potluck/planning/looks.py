"""When workers look at each other's numbers, and what must be gained before they change the plan.

Every worker counts for itself, from the same commits and the same numbers, so all act at the same step.
"""

from dataclasses import dataclass

from potluck.planning.plan import LEAST_GAIN

_EVERY = 4
_VOTES = 3
_URGENT_GAIN = 0.15


@dataclass(frozen=True, slots=True)
class Look:
    """One comparison of the plan in force with the best one."""

    least_gain: float
    votes: int = 1
    """Looks in a row that must want another plan, unless it is urgent."""


# After a group forms, or a machine is not what it was: a first plan from one timing each (the first step is odd), a
# correction if that misled, and a finer one from all timings so far; a plan from kept profiles is not given up for one
# timing. Later a machine that wanders a little is not worth following.
FIRST_LOOK = Look(LEAST_GAIN)
_EARLY = {2: Look(LEAST_GAIN, 2), 5: Look(2 * LEAST_GAIN), 8: Look(0.03)}
_LATE = Look(LEAST_GAIN, _VOTES)


def look_after(num_commits: int) -> Look | None:
    """How plans are compared after so many commits since a group formed or changed urgently; None if they are not."""
    if is_settled(num_commits):
        return None if num_commits % _EVERY else _LATE
    return _EARLY.get(num_commits)


def is_settled(num_commits: int) -> bool:
    """Whether a group has had its early looks."""
    return num_commits > max(_EARLY)


class Votes:
    """Looks in a row that wanted the same."""

    def __init__(self) -> None:
        self._num = 0

    def count(self, needed: int, *, is_wanted: bool) -> bool:
        """One more look; whether it has been wanted often enough."""
        self._num = self._num + 1 if is_wanted else 0
        return self._num >= needed

    def reset(self) -> None:
        """Another question: nothing counts so far."""
        self._num = 0


def is_urgent(gain: float) -> bool:
    """So much of a step at stake that one look is enough."""
    return gain > _URGENT_GAIN
