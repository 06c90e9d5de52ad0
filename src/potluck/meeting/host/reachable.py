"""Which machines of a run can train together: the largest set in which every two reach each other."""

from collections.abc import Collection, Mapping
from itertools import combinations

Pair = frozenset[str]
_MOST_SEARCHED = 16  # of more machines with a broken link, not every combination is tried


def largest_set(machines: Collection[str], broken: Collection[Pair], speeds: Mapping[str, float]) -> set[str]:
    """The largest set without a broken pair; of equal size the fastest, of equal speed the first to join."""
    order = list(machines)
    affected = [name for name in order if any(name in pair for pair in broken)]
    whole = set(order) - set(affected)
    if len(affected) > _MOST_SEARCHED:
        return whole | _one_by_one(affected, broken)
    for size in range(len(affected), 0, -1):
        fitting = [
            chosen
            for chosen in combinations(affected, size)
            if not any(frozenset(pair) in broken for pair in combinations(chosen, 2))
        ]
        if fitting:
            return whole | set(max(fitting, key=lambda chosen: sum(speeds.get(name, 0.0) for name in chosen)))
    return whole


def _one_by_one(affected: list[str], broken: Collection[Pair]) -> set[str]:
    """Greedy choice for many machines: those with the fewest broken links first, each if it fits the chosen ones."""
    chosen: set[str] = set()
    for name in sorted(affected, key=lambda name: sum(name in pair for pair in broken)):
        if not any(frozenset((name, other)) in broken for other in chosen):
            chosen.add(name)
    return chosen
